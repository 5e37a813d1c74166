module windlass.test/monitors

go 1.26.0

// Only its definitions are read: nothing of it is built.
require github.com/prometheus-operator/prometheus-operator v0.85.0
