package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/oncepipe/oncepipe"
)

// Exit codes.
const (
	exitGood = iota
	exitError
	exitUsage
	exitNotFound
	exitLive
)

// exitCode is an error that ends the command with a code of its own.
type exitCode struct {
	code int
	err  error
}

func (e *exitCode) Error() string { return e.err.Error() }
func (e *exitCode) Unwrap() error { return e.err }

func exitWith(code int, format string, args ...any) error {
	return &exitCode{code, fmt.Errorf(format, args...)}
}

// invocation is one run of the command.
type invocation struct {
	dsn, namespace, prefix string
	retention              time.Duration
	result                 string
	limit                  int
	force, json            bool

	given map[string]bool // flags
	args  []string        // of the command
	out   printer
}

// command is one of the words that follow the flags.
type command struct {
	args  string // its arguments, for people
	n     int
	flags []string // those it has beside the common ones
	run   func(*invocation, context.Context, oncepipe.Store) error
	alone func(*invocation, context.Context) error // in place of run: needs no tables
}

var commonFlags = []string{"dsn", "prefix", "json", "namespace"}

func commands() map[string]command {
	return map[string]command{
		"show":    {args: "KEY", n: 1, run: (*invocation).show},
		"forget":  {args: "KEY", n: 1, flags: []string{"force"}, run: (*invocation).forget},
		"resolve": {args: "KEY done|retry|failed", n: 2, flags: []string{"retention", "result"}, run: (*invocation).resolve},
		"dead":    {n: 0, flags: []string{"limit"}, run: (*invocation).dead},
		"redrive": {args: "KEY|all", n: 1, flags: []string{"retention"}, run: (*invocation).redrive},
		"prune":   {n: 0, flags: []string{"limit"}, run: (*invocation).prune},
		"stats":   {n: 0, run: (*invocation).stats},
		"migrate": {n: 0, alone: (*invocation).migrate},
		"schema":  {n: 0, alone: (*invocation).schema},
	}
}

// run is the command but for the process around it.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	err := invoke(ctx, args, getenv, stdout)
	var code *exitCode
	switch {
	case err == nil:
		return exitGood
	case errors.Is(err, flag.ErrHelp):
		if _, err := io.WriteString(stdout, usage); err != nil {
			return exitError
		}
		return exitGood
	case errors.As(err, &code) && code.code == exitUsage:
		fmt.Fprintf(stderr, "oncepipe: %v\nSee oncepipe -h.\n", err)
		return exitUsage
	case errors.As(err, &code):
		fmt.Fprintf(stderr, "oncepipe: %v\n", err)
		return code.code
	default:
		fmt.Fprintf(stderr, "oncepipe: %v\n", err)
		return exitError
	}
}

func invoke(ctx context.Context, args []string, getenv func(string) string, stdout io.Writer) error {
	in := &invocation{}
	words, err := in.parse(args)
	if err != nil {
		return err
	}
	if len(words) == 0 {
		return exitWith(exitUsage, "no command")
	}
	cmd, known := commands()[words[0]]
	in.args = words[1:]
	switch {
	case !known:
		return exitWith(exitUsage, "there is no command %q", words[0])
	case len(in.args) != cmd.n:
		return exitWith(exitUsage, "%s has %d arguments: %s %s", words[0], cmd.n, words[0], cmd.args)
	}
	if err := in.check(words[0], cmd); err != nil {
		return err
	}
	if in.dsn == "" {
		in.dsn = getenv("ONCEPIPE_DSN")
	}
	if in.dsn == "" {
		return exitWith(exitUsage, "no -dsn, and ONCEPIPE_DSN is not set")
	}
	in.out = printer{w: stdout, json: in.json}
	if cmd.alone != nil {
		return cmd.alone(in, ctx)
	}
	st, closer, err := open(ctx, in.dsn, in.prefix, in.retention)
	if err != nil {
		return err
	}
	return errors.Join(cmd.run(in, ctx, st), closer.Close())
}

// parse reads the flags, which may stand anywhere before a --, and returns the
// words between them.
func (in *invocation) parse(args []string) (words []string, err error) {
	fs := flag.NewFlagSet("oncepipe", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // run says what is wrong
	fs.StringVar(&in.dsn, "dsn", "", "")
	fs.StringVar(&in.namespace, "namespace", "", "")
	fs.StringVar(&in.prefix, "prefix", "", "")
	fs.DurationVar(&in.retention, "retention", 0, "")
	fs.StringVar(&in.result, "result", "", "")
	fs.IntVar(&in.limit, "limit", 0, "")
	fs.BoolVar(&in.force, "force", false, "")
	fs.BoolVar(&in.json, "json", false, "")
	for len(args) > 0 {
		if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
			return nil, err
		} else if err != nil {
			return nil, &exitCode{exitUsage, err}
		}
		rest := fs.Args()
		if read := len(args) - len(rest); read > 0 && args[read-1] == "--" {
			words = append(words, rest...)
			break
		}
		if len(rest) == 0 {
			break
		}
		words = append(words, rest[0])
		args = rest[1:]
	}
	in.given = map[string]bool{}
	fs.Visit(func(f *flag.Flag) { in.given[f.Name] = true })
	return words, nil
}

// check refuses flags that the command would not heed.
func (in *invocation) check(name string, cmd command) error {
	allowed := strings.Join(append(cmd.flags, commonFlags...), " ")
	for f := range in.given {
		if !strings.Contains(" "+allowed+" ", " "+f+" ") {
			return exitWith(exitUsage, "-%s has no meaning for %s", f, name)
		}
	}
	switch {
	case in.limit < 0:
		return exitWith(exitUsage, "-limit %d is negative", in.limit)
	case in.retention < 0 || in.given["retention"] && in.retention == 0:
		return exitWith(exitUsage, "-retention %v is not positive", in.retention)
	case in.given["result"] && in.args[len(in.args)-1] != "done":
		return exitWith(exitUsage, "-result has a meaning with resolve KEY done only")
	case in.given["namespace"] && (name == "prune" || name == "stats" || cmd.alone != nil):
		return exitWith(exitUsage, "-namespace has no meaning for %s", name)
	}
	return nil
}
