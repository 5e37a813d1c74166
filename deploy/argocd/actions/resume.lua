-- Goes on with a paused fleet.
obj.spec.paused = false
return obj
