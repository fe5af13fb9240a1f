package storetest_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/oncetest/storetest"
	"github.com/oncepipe/oncepipe/store/memstore"
)

// mutant is a wrong store, a type of its own.
type mutant struct {
	of   func(good *memstore.Store) oncepipe.Store
	rule string // the beginning of the name of one that must catch it
}

// name is that of its type.
func (m mutant) name() string {
	t := reflect.TypeOf(m.of(memstore.New(memstore.Config{})))
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Name()
}

var mutants = slices.Concat(claimMutants, batchMutants, writeMutants, handMutants, retentionMutants, keyMutants, listMutants)

const mutantsVariable = "STORETEST_MUTANTS"

var verdict = regexp.MustCompile(`--- (PASS|FAIL): TestMutants/([^/\s]+)/(\S+) \(`)

// Every mutant is caught by a rule that is about its fault, and the store that
// they are made of, in the same run, by none. The mutants run in a process of
// their own, since they have to fail; none may end it, by a panic or by running
// too long.
func TestMutants(t *testing.T) {
	if os.Getenv(mutantsVariable) != "" {
		runMutants(t)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestMutants$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), mutantsVariable+"=1", "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("no rule failed at all")
	}
	if text := string(out); !strings.Contains(text, "--- FAIL: TestMutants (") || strings.Contains(text, "panic: ") || strings.Contains(text, "DATA RACE") {
		t.Fatalf("the mutants did not come to an end of their own:\n%s", text)
	}
	passed, failed := map[string]int{}, map[string][]string{}
	for _, m := range verdict.FindAllStringSubmatch(string(out), -1) {
		if m[1] == "PASS" {
			passed[m[2]]++
		} else {
			failed[m[2]] = append(failed[m[2]], m[3])
		}
	}
	rules := passed["Store"]
	if rules == 0 || len(failed["Store"]) > 0 {
		t.Errorf("the good store passed %d rules and failed %q", rules, failed["Store"])
	}
	for _, m := range mutants {
		name := m.name()
		caught := failed[name]
		if got := passed[name] + len(caught); got != rules {
			t.Errorf("%s met %d rules of %d", name, got, rules)
		}
		if !slices.ContainsFunc(caught, func(rule string) bool { return strings.HasPrefix(rule, m.rule) }) {
			t.Errorf("%s was not caught by %s; only by %q", name, m.rule, caught)
		}
		t.Logf("%s was caught by %s", name, strings.Join(caught, ", "))
	}
	t.Logf("%d mutants, %d rules", len(mutants), rules)
}

func TestMutants_AreTypes(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants {
		if names[m.name()] || !strings.HasPrefix(m.name(), "mutant") {
			t.Errorf("%s is not a type of its own", m.name())
		}
		names[m.name()] = true
	}
}

// clock is the store's. It is not that of the bubble, which is the client's.
type clock struct{ past atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(0, c.past.Load()) }
func (c *clock) advance(d time.Duration) { c.past.Add(int64(d)) }

func runMutants(t *testing.T) {
	all := append([]mutant{{of: func(good *memstore.Store) oncepipe.Store { return good }}}, mutants...)
	for _, m := range all {
		t.Run(m.name(), func(t *testing.T) {
			storetest.Run(t, func(t *testing.T, rule storetest.Rule) {
				synctest.Test(t, func(t *testing.T) {
					var c clock
					st := m.of(memstore.New(memstore.Config{Retention: retention, MaxResult: maxResult, Now: c.now}))
					rule(t, storetest.Env{Store: st, Advance: c.advance, Retention: retention, MaxResult: maxResult})
				})
			})
		})
	}
}

const (
	retention = time.Hour
	maxResult = 1000
)

// changed is a copy of a batch with a change of every request.
func changed[Q any](reqs []Q, change func(*Q)) []Q {
	reqs = slices.Clone(reqs)
	for i := range reqs {
		change(&reqs[i])
	}
	return reqs
}

// oneByOne makes a call for every request of a batch.
func oneByOne[Q, A any](reqs []Q, call func(Q) ([]A, error)) ([]A, error) {
	var all []A
	for _, req := range reqs {
		answers, err := call(req)
		if err != nil {
			return nil, err
		}
		all = append(all, answers...)
	}
	return all, nil
}

// claimEach is oneByOne for claims. A batch with a request that can't be meant is
// left to the good store, which refuses it whole.
func claimEach(ctx context.Context, good *memstore.Store, reqs []oncepipe.ClaimRequest, call func(oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error)) ([]oncepipe.ClaimAnswer, error) {
	if slices.ContainsFunc(reqs, func(r oncepipe.ClaimRequest) bool {
		return r.Key == "" || r.Claim == (oncepipe.ClaimID{}) || r.Lease <= 0
	}) {
		return good.Claim(ctx, reqs)
	}
	return oneByOne(reqs, call)
}

// memory is a good store that remembers who acquired what, as wrong ones need it.
type memory struct {
	*memstore.Store
	mu     sync.Mutex
	latest map[oncepipe.RecordID]oncepipe.ClaimRequest
}

func remember(good *memstore.Store) *memory {
	return &memory{Store: good, latest: map[oncepipe.RecordID]oncepipe.ClaimRequest{}}
}

func (m *memory) Claim(ctx context.Context, reqs []oncepipe.ClaimRequest) ([]oncepipe.ClaimAnswer, error) {
	answers, err := m.Store.Claim(ctx, reqs)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, a := range answers {
		if a.Status == oncepipe.ClaimAcquired {
			m.latest[reqs[i].RecordID] = reqs[i]
		}
	}
	return answers, err
}

// owner is the claim that acquired a record last.
func (m *memory) owner(id oncepipe.RecordID) oncepipe.ClaimID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.latest[id].Claim
}

func (m *memory) ids() []oncepipe.RecordID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.latest))
}

// look is Lookup of one.
func look(ctx context.Context, st oncepipe.Store, id oncepipe.RecordID) (oncepipe.Record, error) {
	recs, err := st.Lookup(ctx, []oncepipe.RecordID{id})
	if err != nil {
		return oncepipe.Record{}, err
	}
	return recs[0], nil
}

// rewrite makes a record new and lets claim acquire it.
func rewrite(ctx context.Context, st oncepipe.Store, req oncepipe.ClaimRequest) error {
	if _, err := st.Forget(ctx, []oncepipe.RecordID{req.RecordID}, true); err != nil {
		return fmt.Errorf("rewrite: %w", err)
	}
	if _, err := st.Claim(ctx, []oncepipe.ClaimRequest{req}); err != nil {
		return fmt.Errorf("rewrite: %w", err)
	}
	return nil
}
