// Command webhook is what the benchmark compares with: the field rules of device taints and tolerations as a
// platform team would write them in Go, on controller-runtime. It is a fair opponent, not a product: it knows
// resource.k8s.io/v1 only, has no policy and judges every object as new.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"os"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

type options struct {
	host    string
	port    int
	certDir string
	metrics string
}

func main() {
	var o options
	flag.StringVar(&o.host, "host", "", "address to serve reviews on")
	flag.IntVar(&o.port, "port", webhook.DefaultPort, "port to serve reviews on")
	flag.StringVar(&o.certDir, "cert-dir", "", "folder with tls.crt and tls.key")
	flag.StringVar(&o.metrics, "metrics-bind-address", ":8080", "address of the metrics endpoint")
	flag.Parse()
	log.SetLogger(zap.New())
	if err := run(signals.SetupSignalHandler(), o); err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends or a server fails.
func run(ctx context.Context, o options) error {
	scheme := runtime.NewScheme()
	utilruntime.Must(resourcev1.AddToScheme(scheme))
	reviews := webhook.NewServer(webhook.Options{
		Host: o.host, Port: o.port, CertDir: o.certDir, TLSOpts: []func(*tls.Config){disableHTTP2},
	})
	reviews.Register("/validate", &webhook.Admission{Handler: &validator{decoder: admission.NewDecoder(scheme)}})
	metrics, err := metricsserver.NewServer(metricsserver.Options{BindAddress: o.metrics}, nil, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	for _, start := range []func(context.Context) error{metrics.Start, reviews.Start} {
		go func() { ended <- start(ctx) }()
	}
	err = <-ended
	cancel()
	if second := <-ended; err == nil {
		err = second
	}
	return err
}

// disableHTTP2 as kubebuilder's scaffold does; API servers use HTTP/1.1 for webhooks behind a Service anyway.
func disableHTTP2(config *tls.Config) { config.NextProtos = []string{"http/1.1"} }
