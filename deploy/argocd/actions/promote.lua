-- Moves traffic to the nodes that wait to take over.
obj.spec.forcePromote = obj.status.requestedRolloutHash
return obj
