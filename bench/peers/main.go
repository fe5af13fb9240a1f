// Command peers does the same work with bare channels, with Oncepipe and with other
// libraries of pipelines and pools: three steps one after the other, for speed, and
// then writes that go wrong, for what is lost and what is there twice.
//
//	go run ./bench/peers [-quick] [-results DIR] [-benchstat]
//
// It exits with 1 when Oncepipe loses or doubles a write that it should not, and with
// 130 when it is interrupted; then it keeps what was measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// size is how much is measured. Below six rounds benchstat has no interval to show.
type size struct {
	rounds   int
	each     time.Duration // of a chain in a round
	messages int           // under a fault
}

var (
	long  = size{rounds: 15, each: 60 * time.Millisecond, messages: 300}
	quick = size{rounds: 6, each: 30 * time.Millisecond, messages: 200}
)

var errInterrupted = errors.New("interrupted")

func main() {
	short := flag.Bool("quick", false, "fewer rounds and messages")
	dir := flag.String("results", "", "write peers.csv, peers-faults.csv, peers.json, peers.md and peers.svg into this `directory`")
	lines := flag.Bool("benchstat", false, "measure speed only and print it for benchstat")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "peers: unexpected argument", flag.Arg(0))
		os.Exit(2)
	}
	s := long
	if *short {
		s = quick
	}
	ctx, stop := results.Context()
	defer stop()
	err := work(ctx, s, results.Dir(*dir), *lines)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "peers:", err)
	if errors.Is(err, errInterrupted) {
		os.Exit(130)
	}
	os.Exit(1)
}

// work leaves dir as it is when ctx ends before a round is complete.
func work(ctx context.Context, s size, dir results.Dir, lines bool) error {
	progress := results.NewProgress(os.Stderr, "peers, rounds", s.rounds)
	list := race(ctx, s.rounds, s.each, progress)
	progress.Done()
	if lines {
		benchstat(os.Stdout, list)
		if ctx.Err() != nil {
			return errInterrupted
		}
		return nil
	}
	m := measured{
		Run:     results.NewRun(strings.Join(append([]string{"go run ./bench/peers"}, os.Args[1:]...), " ")),
		Modules: modules(),
		rates:   rates(list),
	}
	if len(m.rates) == 0 {
		return fmt.Errorf("%w before a round was complete; nothing is written", errInterrupted)
	}
	m.verdicts = judgeAll(ctx, s.messages)
	m.Partial = ctx.Err() != nil
	if err := m.write(dir); err != nil {
		return err
	}
	fmt.Print(m.tables())
	if dir != "" {
		if err := render(dir); err != nil {
			return err
		}
	}
	if m.Partial {
		return fmt.Errorf("%w: %s", errInterrupted, m.there())
	}
	return broken(m.verdicts)
}

// judgeAll judges all writers at once under one fault after the other: they wait more
// than they work. What was cut short by ctx is left out.
func judgeAll(ctx context.Context, n int) (rows []verdict) {
	all, list := allWriters(), faults()
	progress := results.NewProgress(os.Stderr, "peers, faults", len(list))
	for _, f := range list {
		judged := make([]verdict, len(all))
		var running sync.WaitGroup
		for i, w := range all {
			running.Go(func() { judged[i] = judge(ctx, w, f, n) })
		}
		running.Wait()
		if ctx.Err() != nil {
			break
		}
		rows = append(rows, judged...)
		progress.Step()
	}
	progress.Done()
	return rows
}

// broken is what Oncepipe did not hold to. A lost reply doubles a write of a writer
// who asks nobody: no library can know better.
func broken(rows []verdict) (err error) {
	for _, v := range rows {
		if !strings.HasPrefix(v.Peer, "oncepipe") {
			continue
		}
		asksNobody := v.Fault == "reply lost" && !strings.Contains(v.Peer, "OnceWith")
		if asksNobody {
			v.Doubled = 0
		}
		if v.harmed() {
			err = errors.Join(err, fmt.Errorf("%s under %q: %+v", v.Peer, v.Fault, v))
		}
	}
	return err
}

// module is a library that takes part.
type module struct {
	Path    string `json:"path"`
	Version string `json:"version"`
}

// modules reads from this binary which versions it was built with.
func modules() (list []module) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	for _, p := range peers() {
		if p.module() == "" {
			continue
		}
		m := module{p.module(), "unknown"}
		i := slices.IndexFunc(info.Deps, func(d *debug.Module) bool { return d.Path == m.Path })
		if i >= 0 {
			m.Version = info.Deps[i].Version
		}
		list = append(list, m)
	}
	return list
}
