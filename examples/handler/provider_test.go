package handler

import (
	"net/http"
	"sync"

	"github.com/oncepipe/oncepipe/oncetest"
)

// provider is the payment provider, in memory. It is called by several goroutines,
// as a real one is.
type provider struct {
	mu      sync.Mutex
	keys    map[string]bool
	charges map[string]int // by order
}

func newProvider() *provider { return &provider{keys: map[string]bool{}, charges: map[string]int{}} }

// RoundTrip implements http.RoundTripper.
func (pr *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.ParseForm(); err != nil {
		return nil, err
	}
	pr.mu.Lock()
	defer pr.mu.Unlock()
	if key := r.Header.Get("Idempotency-Key"); key == "" || !pr.keys[key] {
		pr.keys[key] = true
		pr.charges[r.PostForm.Get("order")]++
	}
	return &http.Response{Status: "200 OK", StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// count is how often an order was charged.
func (pr *provider) count(o Order) int {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	return pr.charges[o.ID]
}

// stepTransport makes requests steps.
type stepTransport struct {
	p    *oncetest.Process
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t stepTransport) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	name := r.Method + " " + r.URL.Path
	err = t.p.Step(r.Context(), name, func() error {
		resp, err = t.next.RoundTrip(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}
