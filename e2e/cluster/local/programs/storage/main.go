// Command storage makes the volumes of a local cluster: a directory of the node that was chosen for the first Pod of a claim.
//
//	storage --kubeconfig FILE --provisioner NAME --nodes DIRECTORY --mounted DIRECTORY
//
// It runs beside the nodes, not on them: a volume costs no Pod that makes its directory and none that removes it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v11/controller"
)

// directories are volumes as directories: `nodes`/NODE/storage/VOLUME, which the node itself sees as `mounted`/VOLUME.
type directories struct {
	nodes   string
	mounted string
}

func main() {
	klog.InitFlags(nil)
	kubeconfig := flag.String("kubeconfig", "", "file of the cluster's `address` and of who this is")
	name := flag.String("provisioner", "", "`name` by which StorageClasses ask for it")
	nodes := flag.String("nodes", "", "`directory` in which each node has one of its own")
	mounted := flag.String("mounted", "", "`directory` at which a node sees its storage")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *name, directories{nodes: *nodes, mounted: *mounted}); err != nil {
		fmt.Fprintf(os.Stderr, "storage: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, name string, volumes directories) error {
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	controller.NewProvisionController(ctx, client, name, volumes,
		controller.LeaderElection(false),
		// What went wrong is tried again sooner than the library would, after 15 s: a test waits for it.
		controller.RateLimiter(workqueue.NewItemExponentialFailureRateLimiter(100*time.Millisecond, 15*time.Second)),
	).Run(ctx)
	return nil
}

// Provision makes the directory, writable for whatever user the Pod has.
func (volumes directories) Provision(_ context.Context, options controller.ProvisionOptions) (*core.PersistentVolume, controller.ProvisioningState, error) {
	if options.SelectedNode == nil {
		return nil, controller.ProvisioningFinished, errors.New("a directory is on a node: the StorageClass must have volumeBindingMode WaitForFirstConsumer")
	}
	node := options.SelectedNode.Name
	directory := filepath.Join(volumes.nodes, node, "storage", options.PVName)
	if err := os.Mkdir(directory, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, controller.ProvisioningFinished, err
	}
	// Whatever mask this process has.
	if err := os.Chmod(directory, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	kind := core.HostPathDirectory
	return &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: options.PVName},
		Spec: core.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   options.PVC.Spec.AccessModes,
			Capacity:                      core.ResourceList{core.ResourceStorage: options.PVC.Spec.Resources.Requests[core.ResourceStorage]},
			PersistentVolumeSource: core.PersistentVolumeSource{
				HostPath: &core.HostPathVolumeSource{Path: filepath.Join(volumes.mounted, options.PVName), Type: &kind},
			},
			NodeAffinity: &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{{
				MatchExpressions: []core.NodeSelectorRequirement{{Key: core.LabelHostname, Operator: core.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}, controller.ProvisioningFinished, nil
}

// Delete removes the directory, with all that is in it, from whichever node has it.
func (volumes directories) Delete(_ context.Context, volume *core.PersistentVolume) error {
	held, err := filepath.Glob(filepath.Join(volumes.nodes, "*", "storage", volume.Name))
	if err != nil {
		return err
	}
	for _, directory := range held {
		if err := os.RemoveAll(directory); err != nil {
			return err
		}
	}
	return nil
}
