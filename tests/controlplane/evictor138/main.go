// Evictor138 runs the device taint eviction controller of Kubernetes 1.38, and nothing else of it, until it is ended.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/devicetainteviction"
)

// As kube-controller-manager has them: cmd/kube-controller-manager/names, and the controller's config/v1alpha1.
const (
	name    = "device-taint-eviction-controller"
	workers = 8
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	qps := flag.Float64("kube-api-qps", 20, "requests per second")
	burst := flag.Int("kube-api-burst", 30, "requests at once")
	flag.Func("feature-gates", "those of Kubernetes, as Gate=true,...", utilfeature.DefaultMutableFeatureGate.Set)
	klog.InitFlags(nil)
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	config.UserAgent, config.QPS, config.Burst = name, float32(*qps), *burst
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	factory := informers.NewSharedInformerFactory(client, 0)
	resource := factory.Resource().V1()
	controller := devicetainteviction.New(
		client, factory.Core().V1().Pods(), resource.ResourceClaims(), resource.ResourceSlices(),
		resource.DeviceTaintRules(), resource.DeviceClasses(), name,
	)
	factory.Start(ctx.Done())
	if err := controller.Run(ctx, workers); err != nil {
		log.Fatal(err)
	}
}
