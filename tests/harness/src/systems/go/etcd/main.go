// Command etcd is etcd's server, and etcdctl under that name: its own name chooses the part. Two versions of it are
// built from this file: go.mod has the newer, before.mod the one that it is rolled out over.
package main

import (
	"os"
	"path/filepath"

	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	if filepath.Base(os.Args[0]) == "etcdctl" {
		ctlv3.MustStart()
		return
	}
	etcdmain.Main(os.Args)
}
