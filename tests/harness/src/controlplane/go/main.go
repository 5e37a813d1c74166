// Command controlplane is a whole Kubernetes control plane, and kubectl, in one binary: its first argument
// chooses the part. The part "supervise" runs the others together and ends them with its owner.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	// Linked as "kubectl" it is kubectl, so that a folder on PATH can offer it to plugins and people.
	if filepath.Base(os.Args[0]) == "kubectl" {
		os.Args = append([]string{os.Args[0]}, os.Args...)
	}
	if len(os.Args) < 2 {
		usage()
	}
	part := filepath.Base(os.Args[1])
	os.Args = append([]string{part}, os.Args[2:]...)
	// Only the chosen command is built: each constructor claims the process's signal handler, and a second claim panics.
	switch part {
	case "supervise":
		os.Exit(supervise(os.Args[1:]))
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		run(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		run(controllermanager.NewControllerManagerCommand())
	case "kube-scheduler":
		run(scheduler.NewSchedulerCommand())
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	default:
		usage()
	}
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: controlplane supervise|etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubectl ARGUMENT...")
	os.Exit(2)
}
