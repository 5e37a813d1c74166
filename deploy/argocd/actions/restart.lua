-- Restarts every node of the fleet, in waves.
local os = require("os")
obj.metadata.annotations = obj.metadata.annotations or {}
obj.metadata.annotations["windlass.dev/restartedAt"] = os.date("!%Y-%m-%dT%XZ")
return obj
