-- Begins nothing more of the fleet's rollouts.
obj.spec.paused = true
return obj
