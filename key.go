package oncepipe

import "strings"

// Key joins parts injectively.
func Key(parts ...string) string { return strings.Join(parts, "/") }
