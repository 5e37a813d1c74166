-- How Argo CD sees a NodeDeployment, a StatefulNode, a StatefulSetRollout or a WorkerDeployment:
-- resource.customizations.health.windlass.dev_NodeDeployment, _StatefulNode, _StatefulSetRollout and _WorkerDeployment. It reads what kstatus reads:
-- Stalled and Reconciling, and for what a person holds, Suspended. A StatefulSet whose update strategy somebody overwrote is Degraded.
local hs = { status = "Progressing", message = "it was not looked at yet" }
local status = obj.status
if status == nil or status.conditions == nil then
  return hs
end
local by = {}
for _, condition in ipairs(status.conditions) do
  by[condition.type] = condition
end
local observed = status.observedGeneration or 0
if obj.metadata.deletionTimestamp ~= nil then
  hs.message = "it is being deleted"
  return hs
end
if obj.metadata.generation ~= nil and observed < obj.metadata.generation then
  hs.message = "its spec changed and was not looked at yet"
  return hs
end
local stalled, upToDate, reconciling, ready = by["Stalled"], by["UpToDate"], by["Reconciling"], by["Ready"]
if stalled ~= nil and stalled.status == "True" then
  return { status = "Degraded", message = stalled.reason .. ": " .. (stalled.message or "") }
end
local held = by["Held"]
if held ~= nil and held.status == "False" then
  return { status = "Degraded", message = held.reason .. ": " .. (held.message or "") }
end
if obj.spec ~= nil and (obj.spec.paused or obj.spec.suspend) then
  return { status = "Suspended", message = obj.spec.paused and "it is paused" or "it is suspended" }
end
if upToDate ~= nil and (upToDate.reason == "ReadyToPromote" or upToDate.reason == "PartitionHeld") then
  return { status = "Suspended", message = upToDate.message or upToDate.reason }
end
if status.rollout ~= nil and status.rollout.waitingFor ~= nil then
  return { status = "Suspended", message = status.rollout.message or "it waits" }
end
for _, hook in ipairs(status.hooks or {}) do
  if obj.kind == "WorkerDeployment" and hook.state == "AwaitingApproval" then
    return { status = "Suspended", message = "hook " .. hook.hook .. " waits for a person" }
  end
end
if reconciling ~= nil and reconciling.status == "True" then
  local message = reconciling.message
  if status.rollout ~= nil and status.rollout.message ~= nil and status.rollout.message ~= "" then
    message = status.rollout.message
  end
  return { status = "Progressing", message = message or "" }
end
-- Without replicas, no worker is ready.
local none = obj.kind == "WorkerDeployment" and obj.spec ~= nil and obj.spec.replicas == 0
if ready ~= nil and ready.status ~= "True" and ready.reason ~= "NotStarted" and not none then
  return { status = "Degraded", message = ready.reason .. ": " .. (ready.message or "") }
end
return { status = "Healthy", message = upToDate ~= nil and upToDate.message or "" }
