package redisstore

import (
	"context"
	_ "embed" // for the scripts
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/prelude.lua
	preludeText string
	//go:embed lua/open.lua
	openText string
	//go:embed lua/claim.lua
	claimText string
	//go:embed lua/extend.lua
	extendText string
	//go:embed lua/complete.lua
	completeText string
	//go:embed lua/release.lua
	releaseText string
	//go:embed lua/resolve.lua
	resolveText string
	//go:embed lua/forget.lua
	forgetText string
	//go:embed lua/show.lua
	showText string
	//go:embed lua/lookup.lua
	lookupText string
	//go:embed lua/list.lua
	listText string
	//go:embed lua/count.lua
	countText string
	//go:embed lua/prune.lua
	pruneText string
)

// script is a Lua script.
type script struct {
	text, sha string

	// once: the client may not send it again when its reply was lost. Without a
	// claim id, Redis can't tell that it is the same request.
	once bool
}

type scripts struct {
	open, claim, extend, complete, release, resolve, forget, lookup, list, count, prune script
}

// newScripts returns the scripts with clock as their clock.
func newScripts(clock string) scripts {
	prelude := strings.Replace(preludeText, "{clock}", clock, 1)
	repeatable := func(texts ...string) script {
		text := strings.Join(texts, "\n")
		return script{text: text, sha: redis.NewScript(text).Hash()}
	}
	once := func(text string) script {
		s := repeatable(prelude, text)
		s.once = true
		return s
	}
	return scripts{
		open:     repeatable(openText),
		claim:    repeatable(prelude, claimText),
		extend:   repeatable(prelude, extendText),
		complete: repeatable(prelude, completeText),
		release:  repeatable(prelude, releaseText),
		lookup:   repeatable(prelude, showText, lookupText),
		list:     repeatable(prelude, showText, listText),
		count:    repeatable(prelude, countText),
		resolve:  once(resolveText),
		forget:   once(forgetText),
		prune:    once(pruneText),
	}
}

// run runs a script, by its hash where the server knows it.
func (st *Store) run(ctx context.Context, s script, keys []string, args []any) (*redis.Cmd, error) {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, "evalsha", s.sha, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	words = append(words, args...)
	cmd, err := st.send(ctx, s, words)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		words[0], words[1] = "eval", s.text
		return st.send(ctx, s, words)
	}
	return cmd, err
}

// onceCmd is a command that the client sends once.
type onceCmd struct{ *redis.Cmd }

// NoRetry is what the client asks before it sends a command again.
func (onceCmd) NoRetry() bool { return true }

// send sends a command and waits no longer than ctx: the client may not look at
// it while it waits for a reply.
func (st *Store) send(ctx context.Context, s script, words []any) (*redis.Cmd, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	cmd := redis.NewCmd(ctx, words...)
	cmd.SetFirstKeyPos(3)
	var sent redis.Cmder = cmd
	if s.once {
		sent = onceCmd{cmd}
	}
	if ctx.Done() == nil {
		return cmd, st.client.Process(ctx, sent)
	}
	done := make(chan error, 1)
	go func() { done <- st.client.Process(ctx, sent) }()
	select {
	case err := <-done:
		return cmd, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// errReply: Redis answered what no script of ours does. Nothing is known.
var errReply = errors.New("unexpected reply")
