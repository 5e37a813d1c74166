-- Tries a target again that failed, was aborted or rolled back, or the hooks that failed.
-- Argo CD opens no string library for actions, so a used-up request is found by comparing, not by taking it apart.
local status = obj.status
local plan, rejected = status.plan or {}, status.rejected or {}
local failed = false
for _, hook in ipairs(status.hooks or {}) do
  failed = failed or hook.state == "Failed"
end
for _, condition in ipairs(status.conditions or {}) do
  failed = failed or (obj.kind == "WorkerDeployment" and plan.state == "Active" and condition.type == "Stalled"
    and condition.status == "True")
end
local id = rejected.planID or plan.id
if failed and plan.id ~= nil then
  id = plan.id
end
local annotations = obj.metadata.annotations or {}
local asked, spent = annotations["windlass.dev/retry"], (status.hookRetry or {}).request or status.spentRetry
local value = id
for count = 1, 1000 do
  local request = count == 1 and id or id .. "/" .. count
  if asked == request then
    -- The same value again would change nothing.
    value = spent == asked and id .. "/" .. (count + 1) or asked
    break
  end
end
obj.metadata.annotations = annotations
annotations["windlass.dev/retry"] = value
return obj
