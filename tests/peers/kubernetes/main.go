// Command trieste-kubernetes is every Kubernetes component that the tests need, in one binary, for tests alone. The first
// argument chooses the component; the binary is also called trieste-apiserver, by those who want only that.
//
//	trieste-kubernetes serve DIR ADDRESS FLAGS...
//	    makes the certificates and keys that DIR lacks, starts etcd on DIR/etcd.sock with its data in DIR/etcd, and
//	    then kube-apiserver on ADDRESS with FLAGS: one process, and no network but the API's own port
//	trieste-kubernetes compact DIR
//	    makes the etcd that serves DIR forget its history up to this moment, and prints the revision
//	trieste-kubernetes certificates DIR ADDRESS,... NAME=COMMON-NAME[/ORGANISATION]...
//	    makes what DIR lacks: an authority, a server's certificate for these addresses, an administrator's, and one
//	    for each NAME, a client
//	trieste-kubernetes kube-controller-manager|kube-scheduler|kubelet|kube-proxy|kubectl ...
//	    the component itself
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

const usage = "usage: trieste-kubernetes serve DIR ADDRESS FLAGS... | compact DIR | certificates DIR ADDRESS,... NAME=COMMON-NAME[/ORGANISATION]... | " +
	"kube-controller-manager | kube-scheduler | kubelet | kube-proxy | kubectl"

func main() {
	arguments := os.Args[1:]
	if len(arguments) == 0 {
		fail(fmt.Errorf("%s", usage))
	}
	verb, rest := arguments[0], arguments[1:]
	var err error
	switch {
	case verb == "serve" && len(rest) >= 2:
		err = serve(rest[0], rest[1], rest[2:])
	case verb == "compact" && len(rest) == 1:
		err = compact(rest[0])
	case verb == "certificates" && len(rest) >= 2:
		err = certificates(rest[0], rest[1], rest[2:])
	default:
		component(verb, arguments)
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "trieste-kubernetes:", err)
	os.Exit(1)
}

// component runs one of Kubernetes' own programs as if it were called by its name; it does not come back.
func component(name string, arguments []string) {
	os.Args = arguments
	var command *cobra.Command
	switch name {
	case "kube-controller-manager":
		command = controllers.NewControllerManagerCommand()
	case "kube-scheduler":
		command = scheduler.NewSchedulerCommand()
	case "kubelet":
		command = kubelet.NewKubeletCommand(context.Background())
	case "kube-proxy":
		command = proxy.NewProxyCommand()
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
		os.Exit(0)
	default:
		fail(fmt.Errorf("%s", usage))
	}
	os.Exit(cli.Run(command))
}
