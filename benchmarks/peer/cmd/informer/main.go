// Command informer fills client-go's informers with what our inventory follows, and says how long that took.
//
// It prints one JSON object, {"seconds": ..., "residentBytes": ...}, once all have synced, and then waits to be ended.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

type result struct {
	Seconds       float64 `json:"seconds"`
	ResidentBytes int64   `json:"residentBytes"`
	Objects       int     `json:"objects"`
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "of the API server")
	flag.Parse()
	if err := run(*kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig string) error {
	started := time.Now()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	// The form that Go programs read fastest, as controllers of Kubernetes itself ask for it.
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	resources := factory.Resource().V1()
	slices := resources.ResourceSlices().Informer()
	claims := resources.ResourceClaims().Informer()
	rules := resources.DeviceTaintRules().Informer()
	ctx := context.Background()
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("%s did not sync", kind)
		}
	}
	seconds := time.Since(started).Seconds()
	resident, err := residentBytes()
	if err != nil {
		return err
	}
	objects := len(slices.GetStore().ListKeys()) + len(claims.GetStore().ListKeys()) + len(rules.GetStore().ListKeys())
	if err := json.NewEncoder(os.Stdout).Encode(result{seconds, resident, objects}); err != nil {
		return err
	}
	runtime.KeepAlive(factory)
	select {}
}

func residentBytes() (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "VmRSS:") {
			kib, err := strconv.ParseInt(strings.Fields(line)[1], 10, 64)
			return kib * 1024, err
		}
	}
	return 0, fmt.Errorf("no VmRSS in /proc/self/status")
}
