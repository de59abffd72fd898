// Command load drives one HTTPS admission webhook as hard as it can and prints what it saw as JSON, after a line that
// says when all of its connections are open.
//
// It speaks HTTP/1.1 with keep-alive, as kube-apiserver does to webhooks, over a fixed number of connections, one
// request at a time on each. The client is written by hand because net/http's costs more per request than the
// servers under test do: on one core it would measure itself. It also spends no time on what a measurement does not
// need; what it does need, that every answer has status 200 and echoes the uid of its own request, is checked for
// each one, and the uid changes from request to request so that no server can answer from a cache.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Report is what one run prints. Latencies are in microseconds, seen by the client with all connections busy.
type Report struct {
	Requests    int      `json:"requests"`
	Seconds     float64  `json:"seconds"`
	PerSecond   float64  `json:"perSecond"`
	P50         float64  `json:"p50Microseconds"`
	P99         float64  `json:"p99Microseconds"`
	Max         float64  `json:"maxMicroseconds"`
	Errors      int      `json:"errors"`
	NotOK       int      `json:"notOK"`
	WrongUID    int      `json:"wrongUID"`
	FirstError  string   `json:"firstError,omitempty"`
	Cipher      string   `json:"cipher"`
	LoadCPU     float64  `json:"loadCPU"` // share of one core that this process used: near 1 it is the bottleneck
	Connections int      `json:"connections"`
	Bodies      []string `json:"bodies"`
}

type options struct {
	url         *url.URL
	ca          string
	connections int
	duration    time.Duration
	bodies      []string
}

func main() {
	o, err := parse(os.Args[1:])
	if err == nil {
		var r Report
		if r, err = run(o); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(r)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(2)
	}
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("load", flag.ContinueOnError)
	target := fs.String("url", "", "the webhook, https://host:port/path")
	fs.StringVar(&o.ca, "ca-file", "", "certificate that the webhook's must be signed by")
	fs.IntVar(&o.connections, "connections", 16, "connections, each with one request in flight")
	fs.DurationVar(&o.duration, "duration", 5*time.Second, "how long to send")
	fs.Usage = func() {
		fmt.Fprintln(fs.Output(), "usage: load -url U -ca-file F [-connections N] [-duration D] BODY.json ...")
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.bodies = fs.Args()
	if len(o.bodies) == 0 || o.connections < 1 {
		return o, errors.New("at least one body and one connection are needed")
	}
	u, err := url.Parse(*target)
	if err != nil {
		return o, err
	}
	if u.Scheme != "https" || u.Port() == "" {
		return o, fmt.Errorf("-url %q: must be https with a port", *target)
	}
	o.url = u
	return o, nil
}

// run opens all connections, then starts the clock, so that handshakes are not part of the figures.
func run(o options) (Report, error) {
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(o.ca)
	if err != nil {
		return Report{}, err
	}
	if !pool.AppendCertsFromPEM(pem) {
		return Report{}, fmt.Errorf("%s: no certificate in it", o.ca)
	}
	config := &tls.Config{RootCAs: pool, ServerName: o.url.Hostname(), NextProtos: []string{"http/1.1"}}
	clients := make([]*client, o.connections)
	for i := range clients {
		requests, err := requestsFor(o, i)
		if err != nil {
			return Report{}, err
		}
		if clients[i], err = dial(o.url.Host, config, requests); err != nil {
			return Report{}, err
		}
		defer clients[i].conn.Close()
	}
	fmt.Println("connected") // from now on, what the server uses is used for requests
	ctx, cancel := context.WithTimeout(context.Background(), o.duration)
	defer cancel()
	cpu, start := cpuTime(), time.Now()
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() { c.drive(ctx, start.Add(o.duration)) })
	}
	wg.Wait()
	elapsed := time.Since(start)
	r := summarise(clients, elapsed)
	r.LoadCPU = (cpuTime() - cpu).Seconds() / elapsed.Seconds()
	r.Cipher = strings.TrimPrefix(tls.CipherSuiteName(clients[0].conn.ConnectionState().CipherSuite), "TLS_")
	r.Bodies = o.bodies
	return r, nil
}

// requestsFor reads the bodies and makes whole requests of them, this connection's own copies.
func requestsFor(o options, connection int) ([]*request, error) {
	var requests []*request
	for _, path := range o.bodies {
		body, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		r, err := newRequest(o.url, body, connection)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		requests = append(requests, r)
	}
	return requests, nil
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
