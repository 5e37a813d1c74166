-- Which actions a NodeDeployment offers: resource.customizations.actions.windlass.dev_NodeDeployment, discovery.lua.
local status = obj.status or {}
local plan, rollout, rejected = status.plan or {}, status.rollout, status.rejected
local active = plan.state == "Active"
local promoting = rollout ~= nil and rollout.stage == "Promoting"
local waits = false
for _, condition in ipairs(status.conditions or {}) do
  waits = waits or (condition.type == "UpToDate" and condition.reason == "ReadyToPromote")
end
local paused = obj.spec.paused == true
return {
  pause = { disabled = paused },
  resume = { disabled = not paused },
  restart = { disabled = false },
  promote = { disabled = not waits },
  abort = { disabled = not active or promoting or (rollout ~= nil and rollout.stage == "Retiring") },
  retry = { disabled = rejected == nil and not (plan.state == "Failed" and rollout ~= nil) },
}
