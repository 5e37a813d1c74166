package main

import (
	"fmt"
	"os"
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	_ "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/schema/sqlite"
)

const clusterName = "active"

// database is SQLite in a file, or in memory where none is named.
func database(file string) *config.SQL {
	if file != "" {
		return &config.SQL{
			PluginName: "sqlite", DatabaseName: file, ConnectAttributes: map[string]string{"mode": "rwc"},
		}
	}
	return &config.SQL{
		PluginName:        "sqlite",
		DatabaseName:      fmt.Sprintf("windlass-%d", os.Getpid()),
		ConnectAttributes: map[string]string{"mode": "memory", "cache": "shared"},
	}
}

// prepare makes the schema of a new file, and the namespaces that are not there yet. A database in memory has its schema.
func prepare(store *config.SQL, file string, namespaces []string) {
	if file != "" {
		if _, err := os.Stat(file); os.IsNotExist(err) {
			check(sqlite.SetupSchema(store))
		}
	}
	var all []*sqlite.NamespaceConfig
	for _, name := range namespaces {
		namespace, err := sqlite.NewNamespaceConfig(clusterName, name, false, nil)
		check(err)
		all = append(all, namespace)
	}
	check(sqlite.CreateNamespaces(store, all...))
}

func configuration(host string, port int, ports []int, store *config.SQL) *config.Config {
	service := func(port int) config.Service {
		return config.Service{RPC: config.RPC{GRPCPort: port, BindOnIP: host}}
	}
	frontend := fmt.Sprintf("%s:%d", host, port)
	return &config.Config{
		Global: config.Global{
			Membership: config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: host},
		},
		Persistence: config.Persistence{
			DefaultStore: "sqlite", VisibilityStore: "sqlite", NumHistoryShards: 1,
			DataStores: map[string]config.DataStore{"sqlite": {SQL: store}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10, MasterClusterName: clusterName, CurrentClusterName: clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {
				Enabled: true, InitialFailoverVersion: 1, RPCAddress: frontend,
				ClusterID: "8c0f6c1e-3b43-4f0e-9c53-5d3b7d1c0a11",
			}},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services: map[string]config.Service{
			"frontend": service(port), "history": service(ports[1]),
			"matching": service(ports[2]), "worker": service(ports[3]),
		},
		Archival: config.Archival{
			History: config.HistoryArchival{State: "disabled"}, Visibility: config.VisibilityArchival{State: "disabled"},
		},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: "disabled"},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: "disabled"},
		}},
		PublicClient: config.PublicClient{HostPort: frontend},
	}
}
