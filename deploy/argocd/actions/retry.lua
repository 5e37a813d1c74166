-- Tries a target again that failed, was aborted or rolled back.
local status = obj.status
obj.metadata.annotations = obj.metadata.annotations or {}
obj.metadata.annotations["windlass.dev/retry"] = status.rejected ~= nil and status.rejected.planID or status.plan.id
return obj
