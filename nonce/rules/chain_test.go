package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/rules"
)

// book is a chain that says what a script writes into it.
type book struct {
	view   nonce.ChainView
	unseen bool
}

func (b *book) View(int64) nonce.ChainView      { return b.view }
func (b *book) Unseen(int64, int64) bool        { return b.unseen }
func (b *book) UsedBy(int64) (h nonce.TxHash)   { h[31] = 77; return h }
func (b *book) Committed([]nonce.Event)         {}
func (b *book) Owned(bool)                      {}
func (b *book) Signer(string) nonce.ChainSigner { return b }

// stories are scripts about time and the chain. Beside the lines of noncetest they have
//
//	wait 8s                              the store's clock goes on
//	chain mined=1 final=1 start=5 window=2 unknown=10m known old   what the chain says from now on
//	chain unseen                         and no node sees what is unknown
//	holds 3                              as many nonces may be open from now on
//	lose ceiling=4 doubt=10m grant=30s   a log is lost that may have handed out below the ceiling
//	rows                                 everything that is kept of the signer
//	watch                                how the signer is watched after that, by the last plan
//	told                                 the events of what ended by itself, since the last
var stories = []struct{ name, script string }{
	{"AHoldEndsASecondAfterItsDeadline", `
		allocate hold=5s -> 0#1
		allocate         -> 1#1
		wait 5999ms
		allocate         -> 2#1
		wait 1ms
		status           -> next 3 floor 0 held 2 released 1 consumed 0
		allocate         -> 0#2
		told             -> expired 0#1`},
	{"AHoldThatIsOverCountsAsReleasedBeforeItIsEnded", `
		allocate hold=5s -> 0#1
		wait 5500ms
		status           -> next 1 floor 0 held 0 released 1 consumed 0
		allocate         -> 1#1`},
	{"WhoIsLateMayStillSayThatHeUsedIt", `
		allocate hold=5s count=2 by=7 -> 0#1 1#1
		wait 7s
		used 0#1 hash=7 by=8     -> not_holder
		used 0#1 hash=7 by=7     -> CONSUMED
		allocate by=8            -> 1#2
		used 1#1 by=7            -> conflict
		used 1#2 by=7            -> not_holder`},
	{"AHoldBelowTheFloorIsConsumedWhenItIsDue", `
		allocate hold=5s -> 0#1
		floor 3          -> floor 3 next 3
		wait 7s
		allocate         -> 3#1
		rows             -> 0#1=CONSUMED/below_floor 3#1=HELD
		told             -> expired 0#1 below_floor`},
	{"ARefusedTransactionLeavesAHoldThatIsHandedOutAgainWhenItIsOver", `
		chain known mined=0 unknown=10m
		send 0 hash=1 take by=7 hold=5s -> HELD #1 1
		release 0#1 keep hash=1 by=7 hold=5s -> HELD
		wait 7s
		allocate by=8                   -> 0#2
		told                            -> expired 0#1 refused`},
	{"ANonceThatWasUnknownIsTakenInPassingAndThatIsSaid", `
		chain known unknown=10m
		allocate hold=5s       -> 0#1
		wait 8s
		allocate               -> 1#1
		wait 11m
		chain known unknown=10m unseen
		send 0 hash=1 take     -> HELD #2 1 was #1 RELEASED/unseen
		send 0 hash=1          -> HELD #2 1`},
	{"ARequestIdWhoseHoldIsOverIsAConflict", `
		allocate hold=5s id=a -> 0#1
		wait 5s
		allocate hold=5s id=a -> conflict 0#1=RELEASED
		wait 2s
		allocate              -> 0#2
		allocate hold=5s id=a -> conflict 0#2=HELD`},
	{"OverdueHoldsAreEndedBeforeTheLimitIsJudged", `
		holds 3
		allocate hold=5s count=3 -> 0#1 1#1 2#1
		allocate                 -> hold_limit 3
		wait 7s
		allocate                 -> 0#2`},
	{"ReleasedNoncesCountForTheLimit", `
		holds 2
		allocate count=2 -> 0#1 1#1
		release 0#1      -> RELEASED
		allocate count=2 -> hold_limit 2
		allocate         -> 0#2`},
	{"ANewSignerOfAChainBeginsWhereTheChainSays", `
		chain
		allocate               -> none
		send 0 hash=1 take     -> none
		used 0#1               -> not_found
		status                 -> next 0 floor 0 held 0 released 0 consumed 0
		chain known mined=5 start=7
		used 3#1               -> not_found
		send 3 hash=1          -> conflict 3#0=CONSUMED
		allocate known id=x    -> not_found
		allocate               -> 7#1
		status                 -> next 8 floor 0 held 1 released 0 consumed 7
		chain
		allocate               -> 8#1`},
	{"ANewSignerDoesNotBeginWhereTheChainWasLongAgo", `
		chain known mined=5 start=7 old
		allocate            -> none
		allocate id=x       -> none
		send 7 hash=1 take  -> none
		repair              -> none
		chain known mined=5 start=7
		allocate            -> 7#1`},
	{"ANewNonceIsNotBeyondTheWindow", `
		chain known window=2
		allocate count=3   -> window 2 lowest 0
		allocate           -> 0#1
		allocate id=x      -> 1#1
		allocate           -> window 2 lowest 0
		allocate id=x      -> 1#1
		allocate id=y      -> window 2 lowest 0
		send 2 hash=1 take -> window 2 lowest 0
		release 0#1        -> RELEASED
		allocate           -> 0#2
		chain known window=2 mined=1
		allocate           -> 2#1
		allocate           -> window 2 lowest 1`},
	{"AReleasedNonceThatTheChainHasUsedIsNotHandedOut", `
		chain known
		allocate count=3 -> 0#1 1#1 2#1
		release 0#1      -> RELEASED
		release 1#1      -> RELEASED
		chain known mined=1
		allocate         -> 1#2
		rows             -> 0#1=CONSUMED/77/mined 1#2=HELD 2#1=HELD
		told             -> used 0#1 mined
		used 0#1 hash=7  -> CONSUMED
		rows             -> 0#1=CONSUMED/7,77/mined 1#2=HELD 2#1=HELD`},
	{"WhatIsGivenBackAndTheChainHasUsedIsUsed", `
		chain known
		allocate count=2 -> 0#1 1#1
		chain known mined=1
		release 0#1      -> CONSUMED
		allocate         -> 2#1
		rows             -> 0#1=CONSUMED/77/mined 1#1=HELD 2#1=HELD`},
	{"TheCursorFollowsTheChain", `
		chain known
		allocate -> 0#1
		chain known mined=4
		allocate -> 4#1
		status   -> next 5 floor 0 held 2 released 0 consumed 3`},
	{"TheFloorFollowsWhatIsFinalInSteps", `
		chain known
		allocate count=2 -> 0#1 1#1
		release 0#1      -> RELEASED
		chain known mined=30 final=15
		allocate         -> 30#1
		status           -> next 31 floor 0 held 2 released 0 consumed 29
		chain known mined=30 final=20
		allocate         -> 31#1
		status           -> next 32 floor 20 held 3 released 0 consumed 29`},
	{"AnOverdueHoldIsUsedWhenAHashWasRecorded", `
		chain known unknown=10m
		allocate hold=5s          -> 0#1
		signed 0#1 hash=4 hold=5s -> HELD #1 4
		allocate first hold=5s    -> 1#1
		signed 1#1 hash=5 hold=5s -> HELD #1 5
		send 2 hash=6 take hold=5s -> HELD #1 6
		wait 8s
		allocate                  -> 3#1
		rows                      -> 0#1=CONSUMED/4 1#1=CONSUMED/5 2#1=CONSUMED/6 3#1=HELD`},
	{"AnOverdueHoldIsReleasedWhenThePromisedHashIsMissing", `
		chain known unknown=10m
		allocate first hold=5s -> 0#1
		wait 8s
		allocate               -> 0#2
		told                   -> expired 0#1 not_recorded`},
	{"AnOverdueHoldThatTheChainHasUsedIsUsed", `
		chain known
		allocate hold=5s -> 0#1
		chain known mined=1
		wait 8s
		allocate         -> 1#1
		rows             -> 0#1=CONSUMED/77/mined 1#1=HELD`},
	{"AnUnknownHoldIsNotHandedOutUntilItWasLookedForLongEnough", `
		chain known unknown=10m
		allocate hold=5s id=x -> 0#1
		wait 8s
		allocate              -> 1#1
		allocate hold=5s id=x -> conflict 0#1=HELD
		extend 0#1            -> conflict 0#1=HELD/unknown
		status                -> next 2 floor 0 held 2 released 0 consumed 0
		wait 11m
		allocate              -> 2#1
		rows                  -> 0#1=HELD/unknown 1#1=HELD/unknown 2#1=HELD
		told                  -> unknown 0#1, unknown 1#1
		chain known unknown=10m unseen
		wait 1m
		allocate              -> 0#2 was #1 RELEASED/unseen
		told                  -> expired 0#1 unseen
		used 0#1 hash=3       -> conflict 0#2=HELD`},
	{"AnUnknownHoldEndsByAMarkOrARelease", `
		chain known unknown=10m
		allocate count=3 hold=5s  -> 0#1 1#1 2#1
		wait 8s
		used 0#1 hash=3           -> CONSUMED
		release 1#1               -> RELEASED
		signed 2#1 hash=4 hold=5s -> HELD #1 4
		allocate                  -> 1#2
		wait 8s
		allocate                  -> 3#1
		rows                      -> 0#1=CONSUMED/3 1#2=HELD 2#1=CONSUMED/4 3#1=HELD`},
	{"ZeroMeansUnknownUntilSomebodyKnows", `
		chain known unseen
		allocate hold=5s -> 0#1
		wait 24h
		allocate hold=9m -> 1#1
		chain known mined=1 unseen
		wait 11m
		allocate         -> 2#1
		rows             -> 0#1=CONSUMED/77/mined 1#1=HELD/unknown 2#1=HELD`},
	{"OnlyWhatBlocksIsRepairedAndNotWhatTheChainHasUsed", `
		chain known
		allocate count=3 -> 0#1 1#1 2#1
		repair 1         -> conflict
		repair           -> 0#2 was #1 1/
		used 0#2 hash=8  -> CONSUMED
		chain known mined=1
		repair 0         -> conflict
		repair by=7      -> 1#2 was #1 1/
		chain known mined=3
		repair           -> conflict
		chain
		repair           -> none`},
	{"ARepairThatIsGivenUpDoesNotFreeWhatMayHaveBeenSentBefore", `
		chain known unknown=1m
		allocate        -> 0#1
		used 0#1 hash=0 -> CONSUMED
		repair hold=5s  -> 0#2 was #1 3/
		release 0#2     -> conflict 0#2=HELD
		allocate        -> 1#1
		wait 8s
		allocate        -> 2#1
		rows            -> 0#2=HELD/unknown 1#1=HELD 2#1=HELD
		repair          -> 0#3 was #2 1/unknown
		send 0 hash=4   -> HELD #3 4
		release 0#3 refused hash=4 -> CONSUMED
		rows            -> 0#3=CONSUMED/4 1#1=HELD 2#1=HELD`},
	{"ARepairThatIsGivenUpFreesTheNonceIfNothingOfItWasSent", `
		chain known unknown=1m
		allocate        -> 0#1
		used 0#1 hash=0 -> CONSUMED
		repair          -> 0#2 was #1 3/
		release 0#2     -> conflict 0#2=HELD
		release 0#2 unsent -> RELEASED
		allocate        -> 0#3
		used 0#3 hash=7 -> CONSUMED
		repair          -> 0#4 was #3 3/ 7
		release 0#4 unsent -> RELEASED
		allocate        -> 0#5`},
	{"NothingIsRepairedThatANodeHasNotBeenAskedForOrSaysIsUsed", `
		chain known
		allocate count=2 -> 0#1 1#1
		chain known repairold
		repair          -> none
		chain known ahead=1
		repair          -> none
		chain known mined=1 ahead=1
		repair          -> 1#2 was #1 1/`},
	{"AHoldThatIsUnknownStaysSoWithoutItsChain", `
		chain known unknown=1m
		allocate hold=5s -> 0#1
		wait 7s
		status           -> next 1 floor 0 held 1 released 0 consumed 0
		allocate         -> 1#1
		nochain
		wait 30m
		allocate         -> 1#2
		rows             -> 0#1=HELD/unknown 1#2=HELD`},
	{"WithoutAChainARepairFindsRoomAmongTheOpenHolds", `
		holds 2
		allocate         -> 0#1
		used 0#1 hash=0  -> CONSUMED
		allocate count=2 -> 1#1 2#1
		repair 0         -> hold_limit 2
		repair 1         -> 1#2 was #1 1/
		used 1#2 hash=1  -> CONSUMED
		repair 0         -> 0#2 was #1 3/
		rows             -> 0#2=HELD/repair 1#2=CONSUMED/1 2#1=HELD`},
	{"WithAChainARepairAlwaysFindsRoom", `
		holds 2
		chain known
		allocate         -> 0#1
		used 0#1 hash=0  -> CONSUMED
		allocate count=2 -> 1#1 2#1
		repair           -> 0#2 was #1 3/`},
	{"ANonceOfWhichNothingIsKnownIsRepairedWithAHigherAttemptThanAny", `
		chain known start=5
		allocate        -> 5#1
		repair          -> 0#1099511635968 was #0 0/
		used 0#1099511635968 hash=2 -> CONSUMED
		rows            -> 0#1099511635968=CONSUMED/2 5#1=HELD
		status          -> next 6 floor 0 held 1 released 0 consumed 5`},
	{"WhatALostLogMayHaveHandedOutIsInDoubt", `
		allocate count=2 hold=1m   -> 0#1 1#1
		release 1#1                -> RELEASED
		lose ceiling=4 doubt=10m grant=30s
		rows                       -> 0#1=HELD/in_doubt 1#1=HELD/in_doubt 2#1=HELD/in_doubt 3#1=HELD/in_doubt
		allocate                   -> 4#1
		release 0#1                -> conflict 0#0=HELD
		extend 0#1 hold=1m         -> conflict 0#0=HELD
		signed 0#1 hash=1          -> conflict 0#0=HELD
		repair 3                   -> conflict 3#0=HELD
		used 0#1                   -> CONSUMED in 30s
		used 0#1                   -> CONSUMED in 30s
		used 0#1 hash=3            -> CONSUMED in 30s
		signed 0#1 hash=3          -> CONSUMED #1 3 1 in 30s
		send 0 hash=3 take         -> CONSUMED #1 3 1 in 30s
		repair 0                   -> conflict 0#0=HELD
		used 2#5                   -> CONSUMED in 30s
		used 3#1048576             -> conflict
		floor 1                    -> floor 1 next 5 in 30s
		wait 10m1s
		status                     -> next 5 floor 1 held 0 released 3 consumed 2
		allocate count=2           -> 1#1048577 3#1048577
		lose ceiling=8 doubt=10m grant=30s
		used 1#1048576             -> conflict
		used 1#1048577             -> CONSUMED in 30s
		used 3#1048579             -> CONSUMED in 30s
		wait 10m1s
		allocate count=3           -> 4#2097153 5#2097153 6#2097153`},
	{"WhatWasRepairedWithoutKnowingIsAboveItsAttemptsAfterALossToo", `
		chain known start=5
		allocate                   -> 5#1
		repair                     -> 0#1099511635968 was #0 0/
		lose ceiling=7 doubt=10m grant=30s
		used 0#1099512684544       -> conflict
		wait 10m1s
		repair by=2                -> 0#1099512684545 was #1099512684544 1/unknown
		used 0#1099512684545 by=2  -> CONSUMED`},
	{"ASignerOfAChainIsWatchedUntilNothingOfItIsOpenAndAllIsFinal", `
		watch                     -> as it is
		chain known
		watch                     -> as it is
		allocate count=2          -> 0#1 1#1
		watch                     -> on
		used 0#1 hash=1           -> CONSUMED
		used 1#1 hash=2           -> CONSUMED
		watch                     -> on
		chain known gap=1
		watch                     -> gap 1
		chain known mined=2 final=1
		watch                     -> on
		chain known mined=2 final=2
		watch                     -> off
		chain final=2
		watch                     -> on
		chain known mined=2 final=2
		allocate                  -> 2#1
		release 2#1               -> RELEASED
		watch                     -> on`},
	{"TheWindowBeginsWhereOneNodeClaimsThatTheAccountIs", `
		chain known window=1 claimed=1
		allocate                  -> 0#1
		allocate                  -> 1#1
		allocate                  -> window 1 lowest 0
		chain known window=1 claimed=1000
		allocate                  -> 2#1
		allocate count=2          -> window 1 lowest 0
		rows                      -> 0#1=HELD 1#1=HELD 2#1=HELD`},
	{"RecordingAHashNeverShortensAHold", `
		allocate hold=9m          -> 0#1
		signed 0#1 hash=4 hold=5s -> HELD #1 4
		wait 8m
		allocate                  -> 1#1
		rows                      -> 0#1=HELD/4 1#1=HELD
		wait 2m
		allocate                  -> 1#2
		rows                      -> 0#1=CONSUMED/4 1#2=HELD`},
}

func TestStories(t *testing.T) {
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			r := newRoom(t)
			lines, want := noncetest.Lines(story.script)
			for i, line := range lines {
				if got := r.line(line); got != want[i] {
					t.Errorf("%s: got %q, want %q", line, got, want[i])
				}
			}
		})
	}
}

// line runs a line of a story.
func (r *room) line(line string) string {
	word, rest, _ := strings.Cut(line, " ")
	switch rest = strings.TrimSpace(rest); word {
	case "wait":
		d, err := time.ParseDuration(rest)
		if err != nil {
			r.Fatal(err)
		}
		r.now += d
	case "chain":
		r.chain = r.says(strings.Fields(rest))
	case "nochain":
		r.chain = nil
	case "lose":
		r.lose(rest)
	case "holds":
		fmt.Sscan(rest, &r.rules.MaxLive)
	case "rows":
		return noncetest.Result(&nonce.Op{Kind: nonce.KindList, Page: nonce.ListPage{Rows: r.rows()}})
	case "watch":
		r.run(&nonce.Op{Kind: nonce.KindStatus})
		return map[nonce.WatchKind]string{0: "as it is", nonce.WatchOff: "off", nonce.WatchOn: "on", nonce.WatchGap: fmt.Sprint("gap ", r.watch.Nonce)}[r.watch.Kind]
	case "told":
		var words []string
		for _, e := range r.events {
			words = append(words, strings.TrimSpace(fmt.Sprintf("%v %d#%d %s", e.Type, e.Nonce, e.Attempt, e.Reason)))
		}
		r.events = nil
		return strings.Join(words, ", ")
	default:
		op := noncetest.Parse(r, line)
		r.run(op)
		if r.after > 0 {
			return fmt.Sprintf("%s in %v", noncetest.Result(op), time.Duration(r.after)*time.Millisecond-r.now)
		}
		return noncetest.Result(op)
	}
	return ""
}

// lose mends the signer after the loss of a log that had a ceiling of it.
func (r *room) lose(words string) {
	var doubt, grant string
	if _, err := fmt.Sscanf(words, "ceiling=%d doubt=%s grant=%s", &r.signer.Ceiling, &doubt, &grant); err != nil {
		r.Fatal(err)
	}
	at := func(text string) int64 {
		d, err := time.ParseDuration(text)
		if err != nil {
			r.Fatal(err)
		}
		return (r.now + d).Milliseconds()
	}
	r.shard.Epoch++
	r.shard.DoubtUntil, r.shard.GrantUntil = at(doubt), at(grant)
	mended, is := rules.Mend(r.signer, &r.shard)
	if !is {
		r.Fatal("there is nothing to mend")
	}
	r.signer = mended
}

func (r *room) says(words []string) *book {
	b := new(book)
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		into := map[string]*int64{"mined": &b.view.Mined, "final": &b.view.Final, "start": &b.view.Start, "window": &b.view.Window, "ahead": &b.view.Ahead, "claimed": &b.view.Claimed}[key]
		switch {
		case key == "known":
			b.view.Known = true
		case key == "repairold":
			b.view.RepairOld = true
		case key == "old":
			b.view.StartOld = true
		case key == "gap":
			b.view.Trouble.Kind = nonce.WatchGap
			fmt.Sscan(value, &b.view.Trouble.Nonce)
		case key == "unseen":
			b.unseen = true
		case key == "unknown":
			b.view.UnknownFor, _ = time.ParseDuration(value)
		case into != nil:
			fmt.Sscan(value, into)
		default:
			r.Fatalf("what is %q?", word)
		}
	}
	return b
}
