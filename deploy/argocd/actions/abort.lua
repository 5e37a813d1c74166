-- Stops the fleet's rollout; nodes stay at what they run.
obj.metadata.annotations = obj.metadata.annotations or {}
obj.metadata.annotations["windlass.dev/abort"] = obj.status.plan.id
return obj
