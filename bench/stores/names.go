package main

import (
	"fmt"
	"time"
)

// Names of rows that the document looks up.
const (
	bareTransaction = "bare transaction"
	pruneTail       = "p99.9 of a claim beside it"
	pruneLongest    = "longest claim beside it"
)

func txOverBare(slower time.Duration) string {
	return "Tx one by one, rate over bare" + delayed(slower)
}

func batchOverTx(size int, slower time.Duration) string {
	return fmt.Sprintf("TxBatch of %d, rate over Tx one by one%s", size, delayed(slower))
}

func batchOverBare(size int, slower time.Duration) string {
	return fmt.Sprintf("TxBatch of %d, rate over bare insert%s", size, delayed(slower))
}

func claimsOverBatches(callers int) string {
	return fmt.Sprintf("claims of %d callers, rate over direct batches", callers)
}

func claimsOverSingle(callers int) string {
	return fmt.Sprintf("claims of %d callers, rate over one by one", callers)
}

func sharedOverBatch(callers int) string {
	return fmt.Sprintf("shared Tx of %d callers, rate over TxBatch of single inserts", callers)
}

func sharedOverTx(callers int) string {
	return fmt.Sprintf("shared Tx of %d callers, rate over Tx one by one", callers)
}

// What is done at some rate.
const (
	insertByHand = "insert by hand"
	aClaim       = "claim"
	aCompletion  = "completion"
	anEffect     = "effect"
	effectByHand = "effect by hand"
)

// inCalls names a rate by how many items each call or transaction has.
func inCalls(what string, size int) string {
	if size == 1 {
		return what + ", one by one"
	}
	return fmt.Sprintf("%s, %d at a time", what, size)
}

func delayed(slower time.Duration) string {
	if slower == 0 {
		return ""
	}
	return fmt.Sprintf(", commits %v slower", slower)
}
