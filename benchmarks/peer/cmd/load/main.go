// Command load drives HTTPS admission webhooks as hard as it can and prints what it saw as a JSON list, a report for each,
// after a line that says when all of its connections are open.
//
// Several webhooks take turns of a tenth of a second, each pass in the opposite order of the last: what else
// the machine does slows all of them down, so that their ratio is worth more than their figures.
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
	"slices"
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
	urls        []*url.URL
	ca          string
	connections int
	duration    time.Duration // for each webhook
	turn        time.Duration
	bodies      []string
}

// A target is a webhook with the connections to it, and how long it was driven.
type target struct {
	clients []*client
	elapsed time.Duration
	cpu     time.Duration // of this process
}

func main() {
	o, err := parse(os.Args[1:])
	if err == nil {
		var reports []Report
		if reports, err = run(o); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(reports)
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
	fs.Func("url", "a webhook, https://host:port/path; may be repeated", func(text string) error {
		u, err := url.Parse(text)
		if err == nil && (u.Scheme != "https" || u.Port() == "") {
			err = errors.New("must be https with a port")
		}
		o.urls = append(o.urls, u)
		return err
	})
	fs.StringVar(&o.ca, "ca-file", "", "certificate that the webhook's must be signed by")
	fs.IntVar(&o.connections, "connections", 16, "connections, each with one request in flight")
	fs.DurationVar(&o.duration, "duration", 5*time.Second, "how long to send to each webhook")
	fs.DurationVar(&o.turn, "turn", 100*time.Millisecond, "how long to send to one before it is the next one's turn")
	fs.Usage = func() {
		fmt.Fprintln(fs.Output(), "usage: load -url U -ca-file F [-url U ...] [-connections N] [-duration D] [-turn D] BODY.json ...")
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.bodies = fs.Args()
	if len(o.bodies) == 0 || len(o.urls) == 0 || o.connections < 1 || o.turn <= 0 {
		return o, errors.New("at least one body, one URL, one connection and some time are needed")
	}
	return o, nil
}

// run opens all connections, then starts the clock, so that handshakes are not part of the figures.
func run(o options) ([]Report, error) {
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(o.ca)
	if err != nil {
		return nil, err
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in it", o.ca)
	}
	targets := make([]*target, len(o.urls))
	for i, u := range o.urls {
		targets[i] = &target{}
		defer targets[i].close()
		if err := targets[i].connect(o, u, pool); err != nil {
			return nil, err
		}
	}
	fmt.Println("connected") // from now on, what the servers use is used for requests
	order := slices.Clone(targets)
	for left := o.duration; left > 0; left -= o.turn {
		for _, t := range order {
			t.drive(min(left, o.turn))
		}
		slices.Reverse(order)
	}
	reports := make([]Report, len(targets))
	for i, t := range targets {
		reports[i] = t.report(o.bodies)
	}
	return reports, nil
}

// connect opens all connections. Those that are open need to be closed, also after an error.
func (t *target) connect(o options, u *url.URL, pool *x509.CertPool) error {
	config := &tls.Config{RootCAs: pool, ServerName: u.Hostname(), NextProtos: []string{"http/1.1"}}
	for i := range o.connections {
		requests, err := requestsFor(o, u, i)
		if err != nil {
			return err
		}
		c, err := dial(u.Host, config, requests)
		if err != nil {
			return err
		}
		t.clients = append(t.clients, c)
	}
	return nil
}

func (t *target) close() {
	for _, c := range t.clients {
		c.conn.Close()
	}
}

// drive sends on all connections for a while.
func (t *target) drive(duration time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), duration)
	defer cancel()
	cpu, start := cpuTime(), time.Now()
	var wg sync.WaitGroup
	for _, c := range t.clients {
		wg.Go(func() { c.drive(ctx, start.Add(duration)) })
	}
	wg.Wait()
	t.elapsed += time.Since(start)
	t.cpu += cpuTime() - cpu
}

func (t *target) report(bodies []string) Report {
	r := summarise(t.clients, t.elapsed)
	r.LoadCPU = t.cpu.Seconds() / t.elapsed.Seconds()
	r.Cipher = strings.TrimPrefix(tls.CipherSuiteName(t.clients[0].conn.ConnectionState().CipherSuite), "TLS_")
	r.Bodies = bodies
	return r
}

// requestsFor reads the bodies and makes whole requests of them, this connection's own copies.
func requestsFor(o options, u *url.URL, connection int) ([]*request, error) {
	var requests []*request
	for _, path := range o.bodies {
		body, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		r, err := newRequest(u, body, connection)
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
