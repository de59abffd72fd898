package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const body = `{"request":{"uid":"6c0d8a0e-5f0b-4d3c-9a55-0d7d3c1f2b11","object":{}}}`

// load runs against a server for a moment and gives the report.
func load(t *testing.T, handler http.HandlerFunc) Report {
	t.Helper()
	return loadAll(t, 50*time.Millisecond, 50*time.Millisecond, handler)[0]
}

// loadAll runs against a server for each handler, in turns.
func loadAll(t *testing.T, duration, turn time.Duration, handlers ...http.HandlerFunc) []Report {
	t.Helper()
	folder := t.TempDir()
	ca, file := filepath.Join(folder, "ca.crt"), filepath.Join(folder, "body.json")
	var urls []*url.URL
	var certificate []byte
	for _, handler := range handlers {
		server := httptest.NewTLSServer(handler)
		t.Cleanup(server.Close)
		certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		u, err := url.Parse(server.URL + "/validate")
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, u)
	}
	for path, content := range map[string][]byte{ca: certificate, file: []byte(body)} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := options{urls: urls, ca: ca, connections: 3, duration: duration, turn: turn, bodies: []string{file}}
	reports, err := run(o)
	if err != nil {
		t.Fatal(err)
	}
	return reports
}

func TestWebhooksTakeTurnsAndEachHasItsReport(t *testing.T) {
	var lock sync.Mutex
	var order []string
	named := func(name string, status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			lock.Lock()
			order = append(order, name)
			lock.Unlock()
			w.WriteHeader(status)
			fmt.Fprint(w, uidOf(t, r))
		}
	}
	reports := loadAll(t, 50*time.Millisecond, 10*time.Millisecond, named("a", 200), named("b", 503))
	if reports[0].Requests == 0 || reports[0].NotOK != 0 || reports[1].Requests != 0 || reports[1].NotOK == 0 {
		t.Errorf("%+v", reports)
	}
	// Five passes, each in the opposite order of the last.
	if turns := strings.Join(slices.Compact(order), ""); turns != "ababab" {
		t.Errorf("turns %q", turns)
	}
	for _, report := range reports {
		if report.Seconds < 0.05 || report.Seconds > 5 {
			t.Errorf("%+v", report)
		}
	}
}

func uidOf(t *testing.T, r *http.Request) string {
	t.Helper()
	content, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	var review struct{ Request struct{ UID string } }
	if err := json.Unmarshal(content, &review); err != nil {
		t.Error(err)
	}
	return review.Request.UID
}

func TestEveryRequestHasItsOwnUID(t *testing.T) {
	var seen sync.Map
	report := load(t, func(w http.ResponseWriter, r *http.Request) {
		uid := uidOf(t, r)
		if _, again := seen.LoadOrStore(uid, true); again {
			t.Errorf("uid %s twice", uid)
		}
		fmt.Fprint(w, uid)
	})
	if report.Requests == 0 || report.Errors+report.NotOK+report.WrongUID != 0 || report.P99 < report.P50 {
		t.Errorf("%+v", report)
	}
}

func TestChunkedAnswersAreRead(t *testing.T) {
	report := load(t, func(w http.ResponseWriter, r *http.Request) {
		for part := range strings.SplitSeq(uidOf(t, r), "-") {
			fmt.Fprint(w, "-", part)
			w.(http.Flusher).Flush()
		}
		fmt.Fprint(w, strings.Repeat("x", 1<<17))
	})
	if report.Requests == 0 || report.Errors+report.NotOK+report.WrongUID != 0 {
		t.Errorf("%+v", report)
	}
}

func TestRefusalsAreCounted(t *testing.T) {
	report := load(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) })
	if report.NotOK == 0 || report.Requests != 0 {
		t.Errorf("%+v", report)
	}
}

func TestAnswersToOtherRequestsAreCounted(t *testing.T) {
	report := load(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
	if report.WrongUID == 0 || report.Requests != 0 {
		t.Errorf("%+v", report)
	}
}

func TestClosedConnectionsAreErrors(t *testing.T) {
	report := load(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, uidOf(t, r))
	})
	if report.Errors != 3 || report.FirstError == "" {
		t.Errorf("%+v", report)
	}
}

func TestHeaderAndBodyAreTLSRecordsOfTheirOwn(t *testing.T) {
	server := httptest.NewTLSServer(nil) // for its certificate
	t.Cleanup(server.Close)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", server.TLS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	u, err := url.Parse("https://" + listener.Addr().String() + "/validate")
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRequest(u, []byte(body), 7)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		client, err := dial(u.Host, server.Client().Transport.(*http.Transport).TLSClientConfig, nil)
		if err == nil {
			err = r.write(client.conn)
		}
		if err != nil {
			t.Error(err)
		}
	}()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// A read returns what is in one record at most.
	for _, want := range [][]byte{r.head, r.body} {
		buffer := make([]byte, 4096)
		n, err := conn.Read(buffer)
		if err != nil || !bytes.Equal(buffer[:n], want) {
			t.Errorf("%q (%v), want %q", buffer[:n], err, want)
		}
	}
}
