// Command webhooks shows what oncepipe is for: webhook deliveries, sent again
// and again by an impatient sender and handled by a flaky pipeline, end as
// exactly one effect each, also when the process is killed on the way.
//
//	go run ./examples/webhooks -dup 0.5 -fail 0.3 -repeat 50
//
// It is a real HTTP receiver and a real SQLite file; the sender is in the same
// process so that one command shows it all. Read pipeline.go first.
//
// Exit codes: 0 every key has exactly one effect, or a dead letter of the
// handler's; 1 rejected input or a broken promise; 2 wrong flags; 130
// interrupted (start again with the same -db to finish); 137 killed by
// -crash-after. go run makes 1 of all of them: build it to see them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/oncepipe/oncepipe"
)

const (
	exitOK          = 0
	exitBroken      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// options are the flags.
type options struct {
	input      string
	db         string
	dup        float64
	fail       float64
	timeout    time.Duration
	workers    int
	buffer     int
	seed       uint64
	repeat     int
	crashAfter float64
	unguarded  bool
	json       bool

	temporary string // the directory of db, where that was not given
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// parse reads the flags. What is wrong with them has been printed when it
// returns an error.
func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("webhooks", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.input, "input", "", "`file` with a delivery a line: {\"id\",\"event\",\"body\"}; a small sample without it")
	f.StringVar(&o.db, "db", "", "SQLite `file`; without it a temporary one, which is removed")
	f.Float64Var(&o.dup, "dup", 0.3, "`share` of deliveries that is sent twice on purpose")
	f.Float64Var(&o.fail, "fail", 0.2, "`rate` at which the handler fails")
	f.DurationVar(&o.timeout, "timeout", 50*time.Millisecond, "how long the sender waits before it sends again, at first")
	f.IntVar(&o.workers, "workers", 8, "workers of the handler")
	f.IntVar(&o.buffer, "buffer", 64, "places in front of the handler")
	f.Uint64Var(&o.seed, "seed", 1, "of what fails and of what is sent twice")
	f.IntVar(&o.repeat, "repeat", 1, "play the file that often, with #n behind the ids")
	f.Float64Var(&o.crashAfter, "crash-after", 0, "kill the process when this `share` of the keys is booked; 0: don't")
	f.BoolVar(&o.unguarded, "unguarded", false, "without dedup and store, to see what happens then")
	f.BoolVar(&o.json, "json", false, "one JSON object in place of the table")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	err := o.check(f.Args())
	if err != nil {
		fmt.Fprintf(stderr, "webhooks: %v\n", err)
		f.Usage()
	}
	return o, err
}

func (o options) check(rest []string) error {
	share := func(x float64) bool { return x >= 0 && x <= 1 } // NaN isn't
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(len(rest) > 0, "unexpected argument %q", rest)
	refuse(!share(o.dup), "-dup %v is not between 0 and 1", o.dup)
	refuse(!share(o.fail), "-fail %v is not between 0 and 1", o.fail)
	refuse(!share(o.crashAfter), "-crash-after %v is not between 0 and 1", o.crashAfter)
	refuse(o.timeout <= 0, "-timeout %v is not positive", o.timeout)
	refuse(o.workers < 1, "-workers %d is less than 1", o.workers)
	refuse(o.buffer < 0, "-buffer %d is negative", o.buffer)
	refuse(o.repeat < 1, "-repeat %d is less than 1", o.repeat)
	return errors.Join(errs...)
}

func run(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	}
	// The first Ctrl-C drains, which takes drainTimeout at most; others change nothing.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := play(ctx, o, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "webhooks: %v\n", err)
		if errors.Is(err, context.Canceled) { // before anything was sent
			return exitInterrupted
		}
		return exitBroken
	}
	return code
}

// play delivers until all is acknowledged or ctx ends, then looks into the
// database and says what it found.
func play(ctx context.Context, o options, stdout, stderr io.Writer) (int, error) {
	in, err := readInput(o.input, o.repeat)
	if err != nil {
		return 0, err
	}
	if o.db == "" {
		dir, err := os.MkdirTemp("", "oncepipe-webhooks-")
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(dir)
		o.temporary, o.db = dir, filepath.Join(dir, "webhooks.db")
	}
	books, err := openLedger(ctx, o, in)
	if err != nil {
		return 0, fmt.Errorf("database %s: %w", o.db, err)
	}
	defer books.close()

	dead := newDeadLetters()
	dead.reject(in.rejected...)
	d, err := deliver(ctx, o, in, books, dead, stderr)
	if err != nil {
		return 0, err
	}
	r, err := examine(d.stats, books, in, dead)
	if err != nil {
		return 0, err
	}
	r.Sent, r.Seconds = d.sent, d.took.Seconds()
	dead.list(stderr)
	if err := r.print(stdout, o); err != nil {
		return 0, err
	}
	if d.left > 0 && ctx.Err() != nil {
		if d.err != nil {
			fmt.Fprintf(stderr, "webhooks: %v\n", d.err)
		}
		fmt.Fprintf(stderr, "interrupted: the pipeline drained and returned %d deliveries to the sender, "+
			"who has %d that are not acknowledged; %s\n", r.stats.Returned, d.left, o.next())
		return exitInterrupted, nil
	}
	if d.left > 0 {
		err = fmt.Errorf("%d deliveries are not acknowledged", d.left)
	}
	if err := errors.Join(d.err, err, r.broken(o, dead)); err != nil {
		return 0, err
	}
	return exitOK, nil
}

// next says what an interrupted user can do.
func (o options) next() string {
	if o.temporary != "" {
		return "with -db a second start would finish them"
	}
	return "start again with the same -db and they are finished"
}

// delivered is what sender and pipeline say of a run.
type delivered struct {
	sent  int64 // requests
	left  int64 // deliveries that are not acknowledged
	took  time.Duration
	stats oncepipe.Stats
	err   error // of Run
}

// deliver runs the receiver and the sender.
func deliver(ctx context.Context, o options, in *input, books *ledger, dead *deadLetters, stderr io.Writer) (delivered, error) {
	p, hooks := build(o, books, dead)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return delivered{}, err
	}
	server := &http.Server{Handler: hooks, ReadHeaderTimeout: 10 * time.Second}
	sender := newSender("http://"+listener.Addr().String(), o, dead)
	fmt.Fprintf(stderr, "receiving on %s, %d keys to deliver\n", sender.url, in.keyCount())

	// Ctrl-C ends both contexts. Otherwise the sender ends first, when all it has is
	// acknowledged, and the pipeline is told to stop. If Run or the server ends by
	// itself, because of an error, there is nobody left to send to.
	running, stopRunning := context.WithCancel(ctx)
	defer stopRunning()
	sending, stopSending := context.WithCancel(ctx)
	defer stopSending()
	begun := time.Now()
	ended := make(chan error, 1)
	go func() {
		defer stopSending()
		ended <- p.Run(running)
	}()
	go func() {
		defer stopSending()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintf(stderr, "webhooks: %v\n", err)
		}
	}()
	progress := showProgress(stderr, p, books)
	left := sender.play(sending, in.deliveries())
	stopRunning()
	runErr := <-ended
	progress.stop()
	err = server.Close() // all is answered but what nobody waits for any more
	return delivered{sender.sent.Load(), left, time.Since(begun), p.Stats(), runErr}, err
}
