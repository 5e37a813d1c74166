-- Which actions a NodeDeployment, a StatefulSetRollout or a WorkerDeployment offers:
-- resource.customizations.actions.windlass.dev_NodeDeployment, _StatefulSetRollout and _WorkerDeployment, discovery.lua. A
-- StatefulSetRollout never waits for a promotion.
local status = obj.status or {}
local plan, rollout, rejected = status.plan or {}, status.rollout, status.rejected
local active = plan.state == "Active"
local stage = rollout ~= nil and rollout.stage or ""
-- Traffic that was switched may be moved back as long as hooks at AfterPromotion are left: the old set still exists.
local switched, left = false, false
for _, task in ipairs(plan.tasks or {}) do
  local params, over = task.params or {}, task.state == "Complete" or task.state == "Skipped"
  switched = switched or (task.type == "switch-traffic" and task.state == "Complete")
  left = left or (params.hook ~= nil and params.at == "AfterPromotion" and not over)
end
local back = plan.recipe == "BlueGreen" and switched and left
local waits, stalled = false, false
for _, condition in ipairs(status.conditions or {}) do
  waits = waits or (condition.type == "UpToDate" and condition.reason == "ReadyToPromote")
  stalled = stalled or (condition.type == "Stalled" and condition.status == "True")
end
-- A retry names the fleet's plan; that of a node alone cannot be told from its task's ID without a string library.
local failed = false
for _, hook in ipairs(status.hooks or {}) do
  failed = failed or (hook.state == "Failed" and plan.id ~= nil)
end
-- A failed gate and a stalled task of workers are no hooks.
failed = failed or (obj.kind == "WorkerDeployment" and active and stalled)
local paused = obj.spec.paused == true
return {
  pause = { disabled = paused },
  resume = { disabled = not paused },
  restart = { disabled = false },
  promote = { disabled = not waits },
  abort = { disabled = not active or stage == "Retiring" or (stage == "Promoting" and not back) },
  retry = { disabled = rejected == nil and not failed and not (plan.state == "Failed" and rollout ~= nil) },
}
