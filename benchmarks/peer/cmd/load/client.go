package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// A request is the bytes of one HTTP request whose uid can be changed in place. An API server writes header and body one
// after the other, each as a TLS record of its own, because net/http does not know that the body is in memory.
type request struct {
	head    []byte
	body    []byte
	uid     []byte // aliases body
	counter []byte // the last digits of uid
	sent    uint64
}

const counterDigits = 8

func newRequest(u *url.URL, body []byte, connection int) (*request, error) {
	var review struct {
		Request struct {
			UID string `json:"uid"`
		} `json:"request"`
	}
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, err
	}
	uid := []byte(review.Request.UID)
	if len(uid) != 36 || bytes.Count(body, uid) != 1 {
		return nil, fmt.Errorf("request.uid %q: must be a UUID and stand in the body once", uid)
	}
	head := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: load\r\nAccept: application/json, */*\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", u.RequestURI(), u.Host, len(body))
	body = bytes.Clone(body)
	at := bytes.Index(body, uid)
	r := &request{head: head, body: body, uid: body[at : at+36], counter: body[at+36-counterDigits : at+36]}
	copy(r.uid, fmt.Appendf(nil, "%08x", connection))
	return r, nil
}

// next changes the uid, so that no two requests of a run carry the same.
func (r *request) next() {
	r.sent++
	n := r.sent
	for i := counterDigits - 1; i >= 0; i-- {
		r.counter[i] = "0123456789abcdef"[n&15]
		n >>= 4
	}
}

func (r *request) write(w io.Writer) error {
	if _, err := w.Write(r.head); err != nil {
		return err
	}
	_, err := w.Write(r.body)
	return err
}

// A client owns one connection and what was seen on it.
type client struct {
	conn      *tls.Conn
	reader    *bufio.Reader
	body      []byte
	requests  []*request
	sent      int
	latencies []uint32 // microseconds; of answers with status 200 and the right uid
	notOK     int
	wrongUID  int
	err       error
}

func dial(address string, config *tls.Config, requests []*request) (*client, error) {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", address, config)
	if err != nil {
		return nil, err
	}
	return &client{
		conn:      conn,
		reader:    bufio.NewReaderSize(conn, 32<<10),
		requests:  requests,
		latencies: make([]uint32, 0, 1<<18),
	}, nil
}

// drive sends one request after the other until the deadline; an answer under way is waited for. A connection that broke
// is used no more: a server that drops one under load has failed the run.
func (c *client) drive(ctx context.Context, deadline time.Time) {
	if c.err != nil {
		return
	}
	if err := c.conn.SetDeadline(deadline.Add(30 * time.Second)); err != nil {
		c.err = err
		return
	}
	for ; ctx.Err() == nil; c.sent++ {
		r := c.requests[c.sent%len(c.requests)]
		r.next()
		start := time.Now()
		if err := r.write(c.conn); err != nil {
			c.err = err
			return
		}
		status, err := c.readResponse()
		if err != nil {
			c.err = err
			return
		}
		switch {
		case status != 200:
			c.notOK++
		case !bytes.Contains(c.body, r.uid):
			c.wrongUID++
		default:
			c.latencies = append(c.latencies, uint32(time.Since(start).Microseconds()))
		}
	}
}

// readResponse leaves the body of the next response in c.body.
func (c *client) readResponse() (status int, err error) {
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) || len(line) < 12 {
		return 0, fmt.Errorf("not an HTTP/1.1 response: %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, err
	}
	length, chunked, err := c.readHeader()
	if err != nil {
		return status, err
	}
	if chunked {
		c.body, err = io.ReadAll(httputil.NewChunkedReader(c.reader))
		if err == nil {
			_, err = c.reader.Discard(2) // the empty trailer
		}
		return status, err
	}
	c.body = slices.Grow(c.body[:0], length)[:length]
	_, err = io.ReadFull(c.reader, c.body)
	return status, err
}

func (c *client) readHeader() (length int, chunked bool, err error) {
	length = -1
	for {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return 0, false, err
		}
		if len(line) <= 2 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, false, err
			}
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			chunked = bytes.EqualFold(value, []byte("chunked"))
		case bytes.EqualFold(name, []byte("connection")) && bytes.EqualFold(value, []byte("close")):
			return 0, false, errors.New("the server closes the connection")
		}
	}
	if length < 0 && !chunked {
		return 0, false, errors.New("a response without a length")
	}
	return length, chunked, nil
}

// summarise adds up what the clients saw. Percentiles are exact: every latency was kept.
func summarise(clients []*client, elapsed time.Duration) Report {
	r := Report{Seconds: elapsed.Seconds(), Connections: len(clients)}
	var all []uint32
	for _, c := range clients {
		all = append(all, c.latencies...)
		r.NotOK += c.notOK
		r.WrongUID += c.wrongUID
		if c.err != nil {
			r.Errors++
			r.FirstError = c.err.Error()
		}
	}
	r.Requests = len(all)
	r.PerSecond = float64(len(all)) / elapsed.Seconds()
	if len(all) > 0 {
		slices.Sort(all)
		r.P50 = float64(all[len(all)/2])
		r.P99 = float64(all[len(all)*99/100])
		r.Max = float64(all[len(all)-1])
	}
	return r
}
