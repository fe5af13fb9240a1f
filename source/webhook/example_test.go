package webhook_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/source/webhook"
)

// A pipeline does the receiving and settling that is written out here; see
// oncepipe.From.
func Example() {
	src := webhook.New(webhook.Config{
		KeyHeader: "Idempotency-Key",
		MaxBody:   64 << 10,
		MaxHold:   8 * time.Second,
	})
	mux := http.NewServeMux()
	mux.Handle("/hooks", src)
	post := func(key, body string) {
		r := httptest.NewRequest("POST", "/hooks", strings.NewReader(body))
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Print(w.Code, " ", w.Body)
	}

	post("order-7", "charge") // no pipeline yet

	// In a service a pipeline does this: oncepipe.From(p, "hooks", src).
	ctx, stop := context.WithCancel(context.Background())
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		done := map[string]bool{}
		for {
			d, err := src.Receive(ctx)
			if err != nil {
				return
			}
			s := oncepipe.Settlement{Outcome: oncepipe.Done}
			switch {
			case done[d.Key]:
				s.Outcome = oncepipe.Duplicate
			case string(d.Value.Body) == "later":
				s = oncepipe.Settlement{Outcome: oncepipe.Returned, Delay: time.Minute}
			default:
				done[d.Key] = true
			}
			_ = d.Settle(context.Background(), s)
		}
	}()
	for !src.Stats().Running {
		runtime.Gosched()
	}

	post("order-7", "charge")
	post("order-7", "charge")
	post("order-8", "later")
	post("", "charge")

	stop()
	<-drained
	post("order-9", "charge")

	// Output:
	// 503 pipeline is not running
	// 200 done
	// 200 duplicate
	// 503 returned
	// 400 missing header Idempotency-Key
	// 503 pipeline is not running
}
