package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

var (
	testID    = oncepipe.RecordID{Namespace: "step", Key: "k"}
	testClaim = oncepipe.ClaimID{1}
)

// calls makes one call of each kind.
var calls = map[string]func(ctx context.Context, st *Store) (answered bool, err error){
	"claim": func(ctx context.Context, st *Store) (bool, error) {
		answers, err := st.Claim(ctx, []oncepipe.ClaimRequest{{RecordID: testID, Claim: testClaim, Lease: time.Minute}})
		return answers != nil, err
	},
	"extend": func(ctx context.Context, st *Store) (bool, error) {
		held, err := st.Extend(ctx, []oncepipe.Extension{{RecordID: testID, Claim: testClaim, Lease: time.Minute}})
		return held != nil, err
	},
	"complete": func(ctx context.Context, st *Store) (bool, error) {
		held, err := st.Complete(ctx, []oncepipe.Completion{{RecordID: testID, Claim: testClaim}})
		return held != nil, err
	},
	"release": func(ctx context.Context, st *Store) (bool, error) {
		held, err := st.Release(ctx, []oncepipe.ReleaseRequest{{RecordID: testID, Claim: testClaim, To: oncepipe.ToFailed}})
		return held != nil, err
	},
	"lookup": func(ctx context.Context, st *Store) (bool, error) {
		recs, err := st.Lookup(ctx, []oncepipe.RecordID{testID})
		return recs != nil, err
	},
	"resolve": func(ctx context.Context, st *Store) (bool, error) {
		done, err := st.Resolve(ctx, []oncepipe.Resolution{{RecordID: testID, Fence: 1, To: oncepipe.StateWaiting}})
		return done != nil, err
	},
	"forget": func(ctx context.Context, st *Store) (bool, error) {
		gone, err := st.Forget(ctx, []oncepipe.RecordID{testID}, true)
		return gone != nil, err
	},
	"list": func(ctx context.Context, st *Store) (bool, error) {
		recs, err := st.List(ctx, oncepipe.Query{State: oncepipe.StateFailed})
		return recs != nil, err
	},
	"count": func(ctx context.Context, st *Store) (bool, error) {
		n, err := st.Count(ctx)
		return n != nil, err
	},
	"prune": func(ctx context.Context, st *Store) (bool, error) {
		n, err := st.Prune(ctx, 10)
		return n != 0, err
	},
}

// once are the calls that the client must not send again by itself.
var once = []string{"resolve", "forget", "prune"}

func TestLostRepliesAreErrors(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			st := f.open()
			f.on("evalsha", reply(""))
			f.count("")
			answered, err := call(t.Context(), st)
			if err == nil || answered || !strings.HasPrefix(err.Error(), "redisstore: "+name+": ") {
				t.Errorf("answered: %v, error %v", answered, err)
			}
			want := 3 // as the client's MaxRetries says
			if slices.Contains(once, name) {
				want = 1
			}
			if n := f.count("evalsha"); n != want {
				t.Errorf("sent %d times, want %d", n, want)
			}
		})
	}
}

func TestUnexpectedRepliesAreErrors(t *testing.T) {
	for name, call := range calls {
		for _, raw := range []string{
			"+OK\r\n", "$-1\r\n", "*1\r\n$1\r\nx\r\n", "*1\r\n*1\r\n:1\r\n", "*1\r\n*3\r\n:1\r\n$1\r\nx\r\n:1\r\n", "*1\r\n*2\r\n:1\r\n:1\r\n",
			"-OOM command not allowed when used memory > 'maxmemory'.\r\n", "-READONLY You can't write against a read only replica.\r\n",
			"*1\r\n*11\r\n$1\r\nx" + strings.Repeat("\r\n$-1", 10) + "\r\n",
		} {
			f := newFake(t)
			st := f.open()
			f.on("evalsha", reply(raw))
			if answered, err := call(t.Context(), st); err == nil || answered {
				t.Errorf("%s after %q: answered: %v, error %v", name, raw, answered, err)
			}
		}
	}
}

func TestCallsEndWithTheirContext(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			st := f.open()
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan struct{})
			defer close(over)
			f.on("evalsha", func([]string) string { cancel(); <-over; return "" })
			if answered, err := call(ctx, st); !errors.Is(err, context.Canceled) || answered {
				t.Errorf("answered: %v, error %v", answered, err)
			}
			f.count("")
			if answered, err := call(ctx, st); !errors.Is(err, context.Canceled) || answered || f.count("evalsha") > 0 {
				t.Errorf("once it is over: answered: %v, error %v", answered, err)
			}
		})
	}
}

// A batch is one command, and two where the server doesn't know the script.
func TestOneRoundTrip(t *testing.T) {
	f := newFake(t)
	st := f.open()
	reqs := make([]oncepipe.Extension, 100)
	for i := range reqs {
		reqs[i] = oncepipe.Extension{RecordID: testID, Claim: testClaim, Lease: time.Minute}
	}
	extend := func(sha, eval int) {
		t.Helper()
		f.count("")
		held, err := st.Extend(t.Context(), reqs)
		if err != nil || len(held) != len(reqs) || !held[0] || held[1] {
			t.Errorf("held %v, %v", held, err)
		}
		seen := f.commands()
		if n := len(seen); n != sha+eval || seen[0] != "evalsha" || eval > 0 && seen[n-1] != "eval" {
			t.Errorf("commands %q", seen)
		}
	}
	answer := reply("*100\r\n:1\r\n" + strings.Repeat(":0\r\n", 99))
	f.on("evalsha", answer)
	extend(1, 0)
	f.on("evalsha", reply(noScript))
	f.on("eval", func(words []string) string {
		if !strings.Contains(words[1], extendText) {
			return forbidden
		}
		return answer(words)
	})
	extend(1, 1)
}

func TestNamesKeepTheOrder(t *testing.T) {
	parts := []string{
		"", "a", "ab", "b", "~", "\x00", "\x00\x00", "\x00\x01", "\x00\xff", "\x01", "\xff", "\xff\xff", "a\x00", "a\x00\x01", "a\x00b", "a\x01", "a\xff",
	}
	var ids []record.ID
	for _, ns := range parts {
		for _, key := range parts {
			ids = append(ids, record.ID{Namespace: ns, Key: key})
		}
	}
	k := newKeys("p")
	for _, a := range ids {
		if got := k.id(k.record(a)); got != a {
			t.Errorf("%q is read as %q", a, got)
		}
		for _, b := range ids {
			want := cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Key, b.Key))
			if got := cmp.Compare(k.record(a), k.record(b)); got != want {
				t.Errorf("%q and %q: order %d, want %d", a, b, got, want)
			}
		}
	}
}
