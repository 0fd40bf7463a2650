// Command kubernetes is the five Kubernetes programs of a cluster in one binary.
//
// The first argument, or the name the binary was started by, says which one runs:
//
//	kubernetes kube-apiserver --etcd-servers=...
//
// One binary builds in the time and space of one program, because the five share almost all their code.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"context"
)

var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if _, known := programs[name]; !known && len(args) > 0 {
		name, args = args[0], args[1:]
	}
	build, known := programs[name]
	if !known {
		names := make([]string, 0, len(programs))
		for n := range programs {
			names = append(names, n)
		}
		fmt.Fprintf(os.Stderr, "unknown program %q: expected one of %s\n", name, strings.Join(names, ", "))
		os.Exit(2)
	}
	// Each command reads os.Args itself in places (kubelet parses its flags twice), so they are rewritten for all.
	os.Args = append([]string{name}, args...)
	os.Exit(cli.Run(build()))
}
