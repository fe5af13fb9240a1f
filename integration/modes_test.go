package integration

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
)

// mode is a way to make an effect once. Each is a step of its own.
type mode string

const (
	inTx        mode = "tx"         // effect and record in one transaction
	inTxBatch   mode = "batch"      // the same for many keys
	idempotent  mode = "idempotent" // Once, a service that honours Idempotency-Key
	atLeastOnce mode = "atleast"    // Once, a service that doesn't
	atMostOnce  mode = "atmost"     // the same, AtMostOnce
)

var (
	txModes   = []mode{inTx, inTxBatch}
	onceModes = []mode{idempotent, atLeastOnce, atMostOnce}
)

// faultPipeline is the name of the pipelines that meet faults, and with it the
// namespace of their records.
const faultPipeline = "faults"

func (m mode) namespace() string { return oncepipe.Key(faultPipeline, string(m)) }

func (m mode) record(key string) oncepipe.RecordID {
	return oncepipe.RecordID{Namespace: m.namespace(), Key: key}
}

// modeOf returns the mode whose record an id is, or "".
func modeOf(id oncepipe.RecordID) mode {
	for _, m := range onceModes {
		if id.Namespace == m.namespace() {
			return m
		}
	}
	return ""
}

// pointFunc hears that a mode is at a point of its work, the name of a moment.
type pointFunc func(m mode, point string)

func nowhere(mode, string) {}

// The points.
const (
	beforeClaim  = "before claim"
	afterClaim   = "after claim"
	inEffect     = "in the effect"
	beforeCommit = "before commit"
	afterCommit  = "after commit"
	beforeAck    = "before ack"
	afterAck     = "after ack"
	inPrune      = "in prune" // of no mode
)

var points = []string{beforeClaim, afterClaim, inEffect, beforeCommit, afterCommit, beforeAck, afterAck}

// work is a store and the functions that make effects on it.
type work struct {
	store oncepipe.Store
	tx    func(context.Context, string) error   // nil: the store is in no database
	batch func(context.Context, []string) error // with tx
	close func() error

	// booked counts the effects of the modes with tx.
	booked   func(context.Context) (map[mode]map[string]int, error)
	bookedOf func(ctx context.Context, m mode, key string) (int, error)
	// bareEffect is that of inTx, with no record.
	bareEffect func(context.Context, string) error

	at pointFunc
}

// modes are those that the store can do.
func (w *work) modes() []mode {
	if w.tx == nil {
		return onceModes
	}
	return append(txModes[:len(txModes):len(txModes)], onceModes...)
}

// limits are times that a pipeline works by.
type limits struct {
	Lease   time.Duration // of Once
	Attempt time.Duration // for a transaction
}

// pipeline makes one that works off a broker for each mode. The effects of Once
// are at the service's URL.
func (w *work) pipeline(cfg oncepipe.Config, brokers map[mode]*broker, service string, l limits) *oncepipe.Pipeline {
	st := &hookedStore{w.store, w.at}
	cfg.Stores = []oncepipe.Store{st}
	p := oncepipe.New(faultPipeline, cfg)
	retry := oncepipe.Retry(oncepipe.RetryPolicy{MaxDelay: 50 * time.Millisecond, MaxAge: -1})
	limit := oncepipe.Timeout(l.Attempt)
	for m, b := range brokers {
		keys := oncepipe.Dedup(oncepipe.From(p, string(m)+" source", b), string(m)+" dedup", func(key string) string { return key })
		switch m {
		case inTx:
			oncepipe.Sink(keys, string(m), w.tx, retry, limit, oncepipe.Workers(4))
		case inTxBatch:
			oncepipe.BatchSink(keys, string(m), w.batch, retry, limit, oncepipe.Workers(2), oncepipe.BatchSize(8))
		default:
			oncepipe.Sink(keys, string(m), w.once(st, m, service, l.Lease), retry, oncepipe.Workers(4))
		}
	}
	return p
}

// once is the effect at the service.
func (w *work) once(st oncepipe.Store, m mode, service string, lease time.Duration) func(context.Context, string) error {
	cfg := oncepipe.OnceConfig[string, struct{}]{AtMostOnce: m == atMostOnce, Lease: lease, MaxTakeovers: -1}
	return oncepipe.DoWith(st, string(m), cfg, func(ctx context.Context, key string) error {
		w.at(m, afterClaim)
		info, _ := oncepipe.InfoFrom(ctx)
		err := post(ctx, service, m, key, info.Token())
		w.at(m, inEffect)
		return err
	})
}

func post(ctx context.Context, service string, m mode, key, token string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, service+"/"+string(m)+"?"+url.Values{"key": {key}}.Encode(), nil)
	if err != nil {
		return err
	}
	if m == idempotent {
		req.Header.Set("Idempotency-Key", token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("service says %s", resp.Status)
	}
	return nil
}

// hookedStore is a store whose points are heard.
type hookedStore struct {
	oncepipe.Store
	at pointFunc
}

func (st *hookedStore) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	st.at(modeOf(reqs[0].RecordID), beforeClaim)
	return st.Store.Claim(ctx, reqs)
}

func (st *hookedStore) Complete(ctx context.Context, reqs []oncepipe.Completion) ([]bool, error) {
	m := modeOf(reqs[0].RecordID)
	st.at(m, beforeCommit)
	held, err := st.Store.Complete(ctx, reqs)
	if err == nil {
		st.at(m, afterCommit)
	}
	return held, err
}

func (st *hookedStore) Prune(ctx context.Context, limit int) (int, error) {
	st.at("", inPrune)
	return st.Store.Prune(ctx, limit)
}

// service is somebody else's, whose effects are counted. An effect that has a
// token which was there before is not made again.
type service struct {
	*httptest.Server
	mu      sync.Mutex
	effects map[mode]map[string]int
	tokens  map[string]bool
}

func newService(t testing.TB) *service {
	s := &service{effects: map[mode]map[string]int{}, tokens: map[string]bool{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
	m := mode(r.URL.Path[1:])
	if token := r.Header.Get("Idempotency-Key"); token != "" {
		if s.tokens[token] {
			return
		}
		s.tokens[token] = true
	}
	if s.effects[m] == nil {
		s.effects[m] = map[string]int{}
	}
	s.effects[m][r.URL.Query().Get("key")]++
}

func (s *service) count(m mode, key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effects[m][key]
}
