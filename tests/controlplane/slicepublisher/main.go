// Slicepublisher publishes ResourceSlices as drivers do, with the library that Kubernetes has for it.
//
// In (standard input): a line each time the driver has something to say, resourceslice.DriverResources as JSON, with
// devices as in resource.k8s.io/v1. Out (standard output): a line of JSON for each error that the library reports, and
// {"ready": true} once it has taken the first line. It ends with its input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

type report struct {
	Ready   bool   `json:"ready,omitempty"`
	Dropped bool   `json:"dropped,omitempty"`
	Error   string `json:"error,omitempty"`
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	driver := flag.String("driver", "gpu.example.com", "name of the driver")
	syncDelay := flag.Duration("sync-delay", resourceslice.DefaultSyncDelay, "how soon a change by others is looked at")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	config.UserAgent = "slicepublisher"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	out := json.NewEncoder(os.Stdout)
	// From one goroutine: the library has one worker.
	handle := func(_ context.Context, err error, msg string) {
		var dropped *resourceslice.DroppedFieldsError
		tell(out, report{Dropped: errors.As(err, &dropped), Error: msg + ": " + err.Error()})
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var controller *resourceslice.Controller
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var resources resourceslice.DriverResources
		if err := json.Unmarshal(lines.Bytes(), &resources); err != nil {
			log.Fatal(err)
		}
		if controller != nil {
			controller.Update(&resources)
			continue
		}
		controller, err = resourceslice.StartController(ctx, resourceslice.Options{
			DriverName: *driver, KubeClient: client, Resources: &resources, SyncDelay: syncDelay, ErrorHandler: handle,
		})
		if err != nil {
			log.Fatal(err)
		}
		tell(out, report{Ready: true})
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // what was said last may still be on its way
	controller.Stop()
}

func tell(out *json.Encoder, what report) {
	if err := out.Encode(what); err != nil {
		log.Fatal(err)
	}
}
