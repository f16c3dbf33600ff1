package nonce_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
)

// rules are the sentences about an allocation, as scripts. Each runs in every
// way the service has of running ops, and must be answered the same in all.
var rules = []struct{ name, script string }{
	{"ANewNonceIsTheNextWithAttempt1", `
		allocate         -> 0#1
		allocate         -> 1#1
		allocate count=3 -> 2#1 3#1 4#1
		status           -> next 5 floor 0 held 5 released 0 consumed 0`},
	{"AReleasedNonceIsHandedOutAgainWithAttemptPlusOne", `
		allocate    -> 0#1
		release 0#1 -> RELEASED
		allocate    -> 0#2
		release 0#2 -> RELEASED
		allocate    -> 0#3`},
	{"AllocateTakesTheLowestReleasedBeforeANewOne", `
		allocate count=4 -> 0#1 1#1 2#1 3#1
		release 2#1      -> RELEASED
		release 1#1      -> RELEASED
		allocate         -> 1#2
		allocate count=2 -> 2#2 4#1`},
	{"AllocateTakesNothingBelowTheFloor", `
		allocate count=3 -> 0#1 1#1 2#1
		release 0#1      -> RELEASED
		release 2#1      -> RELEASED
		floor 2          -> floor 2 next 3
		allocate count=2 -> 2#2 3#1`},
	{"RaisingTheFloorConsumesReleasedOnesBelowItAndLeavesHeldOnes", `
		allocate count=3 -> 0#1 1#1 2#1
		release 0#1      -> RELEASED
		floor 3          -> floor 3 next 3
		list             -> 0#1=CONSUMED/below_floor 1#1=HELD 2#1=HELD
		status           -> next 3 floor 3 held 2 released 0 consumed 1`},
	{"AHeldOneBelowTheFloorIsConsumedWhenItIsGivenBack", `
		allocate    -> 0#1
		floor 5     -> floor 5 next 5
		release 0#1 -> CONSUMED
		release 0#1 -> CONSUMED
		allocate    -> 5#1
		list        -> 0#1=CONSUMED/below_floor 5#1=HELD`},
	{"AHeldOneBelowTheFloorCanBeMarkedUsed", `
		allocate           -> 0#1
		floor 1            -> floor 1 next 1
		used 0#1 hash=7    -> CONSUMED
		list               -> 0#1=CONSUMED/7`},
	{"WhatTheFloorConsumedMayTurnOutToBeUsedOnceAndForAll", `
		allocate        -> 0#1
		release 0#1     -> RELEASED
		floor 1         -> floor 1 next 1
		used 0#1 hash=7 -> CONSUMED
		used 0#1 hash=7 -> CONSUMED
		release 0#1     -> conflict 0#1=CONSUMED/7`},
	{"OnlyTheHolderMarksItsHold", `
		allocate by=7        -> 0#1
		used 0#1 hash=7 by=8 -> not_holder
		release 0#1 by=8     -> not_holder
		list                 -> 0#1=HELD
		used 0#1 hash=7 by=7 -> CONSUMED
		used 0#1 hash=7 by=7 -> CONSUMED
		used 0#1 hash=7 by=8 -> not_holder
		release 0#1 by=8     -> not_holder`},
	{"WhoMayMarkAnyMarksTheHoldsOfOthers", `
		allocate count=2 by=7    -> 0#1 1#1
		release 0#1 by=8 any     -> RELEASED
		release 0#1 by=8 any     -> RELEASED
		used 1#1 hash=7 by=8 any -> CONSUMED
		used 1#1 hash=7 by=7     -> CONSUMED
		used 1#1 hash=7 by=8     -> not_holder`},
	{"AHoldOfNobodyIsMarkedByAnybody", `
		allocate count=2     -> 0#1 1#1
		used 0#1 hash=7 by=8 -> CONSUMED
		used 0#1 hash=7 by=7 -> CONSUMED
		release 1#1 by=8     -> RELEASED
		used 1#1 hash=7 by=7 -> CONSUMED`},
	{"WhereNobodyIsToldApartEverybodyMarks", `
		allocate count=2 by=7 -> 0#1 1#1
		used 0#1 hash=7       -> CONSUMED
		release 1#1           -> RELEASED`},
	{"TheHolderOfTheLastAttemptMaySayLateThatItIsUsed", `
		allocate by=7        -> 0#1
		release 0#1 by=7     -> RELEASED
		used 0#1 hash=7 by=8 -> not_holder
		release 0#1 by=8     -> not_holder
		used 0#1 hash=7 by=7 -> CONSUMED
		used 0#1 hash=7 by=8 -> not_holder`},
	{"WhatTheFloorConsumedIsStillItsHolders", `
		allocate count=2 by=7 -> 0#1 1#1
		release 0#1 by=7      -> RELEASED
		floor 2               -> floor 2 next 2
		used 0#1 hash=7 by=8  -> not_holder
		release 1#1 by=8      -> not_holder
		release 1#1 by=7      -> CONSUMED
		used 0#1 hash=7 by=7  -> CONSUMED
		used 1#1 hash=8 by=7  -> CONSUMED`},
	{"AHoldIsWhoseItIsNowAndWhoIsLateIsToldNothingOfIt", `
		allocate by=7        -> 0#1
		release 0#1 by=7     -> RELEASED
		allocate by=8        -> 0#2
		used 0#2 hash=7 by=7 -> not_holder
		used 0#1 hash=7 by=7 -> conflict
		release 0#1 by=7     -> conflict
		used 0#1 hash=7 by=8 -> conflict 0#2=HELD
		release 0#2 by=8     -> RELEASED
		allocate             -> 0#3
		used 0#3 hash=7 by=7 -> CONSUMED`},
	{"ARequestIdIsAnsweredToWhoGaveItOnly", `
		allocate id=a by=7         -> 0#1
		allocate id=a by=8         -> conflict
		allocate known id=a by=8   -> conflict
		allocate id=a count=2 by=8 -> conflict
		allocate id=a by=7         -> 0#1
		allocate known id=a by=7   -> 0#1
		allocate id=a count=2 by=7 -> conflict 0#1=HELD
		allocate id=a              -> 0#1
		allocate                   -> 1#1`},
	{"ARequestIdThatNobodyGaveIsEverybodys", `
		allocate id=a              -> 0#1
		allocate id=a by=7         -> 0#1
		allocate id=a count=2 by=7 -> conflict
		allocate id=a count=2      -> conflict 0#1=HELD`},
	{"TheFloorIsRaisedAndNeverLowered", `
		floor 7  -> floor 7 next 7
		floor 3  -> floor 7 next 7
		floor 7  -> floor 7 next 7
		allocate -> 7#1
		floor 8  -> floor 8 next 8
		status   -> next 8 floor 8 held 1 released 0 consumed 7`},
	{"AFloorAboveTheCursorLeavesAHoleThatCountsAsConsumed", `
		allocate -> 0#1
		floor 4  -> floor 4 next 4
		used 2#1 -> not_found
		status   -> next 4 floor 4 held 1 released 0 consumed 3`},
	{"MarkUsedIsAcceptedOnAReleasedNonceUntilItIsHandedOutAgain", `
		allocate        -> 0#1
		release 0#1     -> RELEASED
		used 0#1 hash=7 -> CONSUMED
		allocate        -> 1#1
		release 1#1     -> RELEASED
		allocate        -> 1#2
		used 1#1 hash=7 -> conflict 1#2=HELD
		list            -> 0#1=CONSUMED/7 1#2=HELD`},
	{"AMarkOfAnotherAttemptIsAConflictAndChangesNothing", `
		allocate    -> 0#1
		used 0#2    -> conflict 0#1=HELD
		release 0#2 -> conflict 0#1=HELD
		release 0#1 -> RELEASED
		allocate    -> 0#2
		release 0#1 -> conflict 0#2=HELD
		list        -> 0#2=HELD`},
	{"RepeatingAMarkIsAnsweredTheSameWay", `
		allocate count=2 -> 0#1 1#1
		used 0#1 hash=7  -> CONSUMED
		used 0#1 hash=7  -> CONSUMED
		release 1#1      -> RELEASED
		release 1#1      -> RELEASED
		list             -> 0#1=CONSUMED/7 1#1=RELEASED`},
	{"ConsumedIsFinal", `
		allocate        -> 0#1
		used 0#1 hash=7 -> CONSUMED
		release 0#1     -> conflict 0#1=CONSUMED/7
		extend 0#1      -> conflict 0#1=CONSUMED/7
		allocate        -> 1#1`},
	{"AFurtherHashOfTheSameAttemptReplacesTheOneBefore", `
		allocate        -> 0#1
		used 0#1 hash=7 -> CONSUMED
		used 0#1 hash=8 -> CONSUMED
		used 0#1 hash=7 -> CONSUMED
		used 0#1 hash=9 -> CONSUMED
		list            -> 0#1=CONSUMED/9,7,8`},
	{"OnlyItsHolderReplacesATransaction", `
		allocate by=7            -> 0#1
		used 0#1 hash=7 by=7     -> CONSUMED
		used 0#1 hash=8 by=8     -> not_holder
		used 0#2 hash=8 by=7     -> conflict 0#1=CONSUMED/7
		used 0#1 hash=8 by=8 any -> CONSUMED
		list                     -> 0#1=CONSUMED/8,7`},
	{"EightHashesAreRecordedAtMost", `
		allocate        -> 0#1
		used 0#1 hash=1 -> CONSUMED
		used 0#1 hash=2 -> CONSUMED
		used 0#1 hash=3 -> CONSUMED
		used 0#1 hash=4 -> CONSUMED
		used 0#1 hash=5 -> CONSUMED
		used 0#1 hash=6 -> CONSUMED
		used 0#1 hash=7 -> CONSUMED
		used 0#1 hash=8 -> CONSUMED
		used 0#1 hash=9 -> conflict 0#1=CONSUMED/8
		used 0#1 hash=1 -> CONSUMED
		list            -> 0#1=CONSUMED/8,1,2,3,4,5,6,7`},
	{"TheHashMayComeAfterTheMark", `
		allocate        -> 0#1
		used 0#1 hash=0 -> CONSUMED
		used 0#1 hash=0 -> CONSUMED
		list            -> 0#1=CONSUMED
		used 0#1 hash=5 -> CONSUMED
		used 0#1 hash=0 -> CONSUMED
		list            -> 0#1=CONSUMED/5`},
	{"AHashIsRecordedBeforeItsTransactionIsSent", `
		allocate first     -> 0#1
		signed 0#1 hash=4  -> HELD #1 4
		signed 0#1 hash=4  -> HELD #1 4
		list               -> 0#1=HELD/4/record_first
		release 0#1        -> conflict 0#1=HELD/4
		signed 0#1 hash=5  -> HELD #1 5 4
		used 0#1 hash=5    -> CONSUMED
		list               -> 0#1=CONSUMED/5,4`},
	{"WhatWasSignedAndNeverSentIsGivenBack", `
		allocate           -> 0#1
		signed 0#1 hash=4  -> HELD #1 4
		release 0#1 unsent -> RELEASED
		list               -> 0#1=RELEASED
		allocate           -> 0#2
		signed 0#1 hash=4  -> conflict 0#2=HELD`},
	{"WhoIsLateWithAHashMustNotSend", `
		allocate          -> 0#1
		release 0#1       -> RELEASED
		signed 0#1 hash=4 -> conflict 0#1=RELEASED
		signed 1#1        -> not_found`},
	{"AnotherHashMayBeRecordedOfWhatWasSent", `
		allocate          -> 0#1
		used 0#1 hash=4   -> CONSUMED
		signed 0#1 hash=5 -> CONSUMED #1 5 4
		allocate          -> 1#1
		used 1#1 hash=0   -> CONSUMED
		signed 1#1 hash=5 -> conflict 1#1=CONSUMED`},
	{"ATransactionSentThroughTheGatewayIsOfItsHold", `
		allocate by=7                  -> 0#1
		send 0 hash=4 by=8 take        -> not_holder
		send 0 hash=4 by=7             -> HELD #1 4
		list                           -> 0#1=HELD/4/forwarded
		release 0#1 by=7               -> conflict 0#1=HELD/4
		release 0#1 by=7 unsent        -> conflict 0#1=HELD/4
		release 0#1 any refused hash=4 -> RELEASED
		allocate by=8                  -> 0#2
		send 0 hash=5 by=8             -> HELD #2 5
		used 0#2 hash=5 by=8           -> CONSUMED
		send 0 hash=6 by=8             -> CONSUMED #2 6 5
		send 0 hash=6 by=7             -> not_holder`},
	{"ATransactionTakesTheNextNonceInPassing", `
		send 0 hash=1                  -> conflict
		send 1 hash=1 take             -> conflict
		send 0 hash=1 take by=7        -> HELD #1 1
		send 0 hash=1 take by=7        -> HELD #1 1
		send 1 hash=2 take by=7        -> HELD #1 2
		release 0#1 any refused hash=1 -> RELEASED
		send 2 hash=3 take by=8        -> conflict
		send 0 hash=3 take by=8        -> HELD #2 3
		status                         -> next 2 floor 0 held 2 released 0 consumed 0
		list                           -> 0#2=HELD/3/forwarded 1#1=HELD/2/forwarded`},
	{"ARefusedReplacementLeavesWhatItWasToReplace", `
		allocate                       -> 0#1
		send 0 hash=1                  -> HELD #1 1
		send 0 hash=2                  -> HELD #1 2 1
		release 0#1 any refused hash=2 -> CONSUMED
		list                           -> 0#1=CONSUMED/2,1`},
	{"TakingInPassingIsBoundedAsOtherHoldsAre", `
		allocate count=5    -> 0#1 1#1 2#1 3#1 4#1
		send 5 hash=1 take  -> hold_limit 5`},
	{"ARunningHoldIsExtended", `
		allocate by=7        -> 0#1
		extend 0#1 by=7      -> HELD
		extend 0#1 by=8      -> not_holder
		extend 0#2 by=7      -> conflict 0#1=HELD
		extend 1#1           -> not_found
		signed 0#1 by=7      -> HELD #1 1
		extend 0#1 by=7      -> HELD
		list                 -> 0#1=HELD/1
		status               -> next 1 floor 0 held 1 released 0 consumed 0`},
	{"WithoutAChainANonceIsRepairedThatIsNamed", `
		allocate count=3 by=7      -> 0#1 1#1 2#1
		used 1#1 hash=4 by=7       -> CONSUMED
		used 1#1 hash=5 by=7       -> CONSUMED
		release 2#1 by=7           -> RELEASED
		repair by=8                -> no chain
		repair 0 by=8              -> 0#2 was #1 1/
		repair 0 by=7              -> conflict 0#0=HELD
		repair 0 by=8              -> 0#3 was #2 1/repair
		used 0#1 hash=9 by=7       -> conflict
		repair 1 by=8              -> 1#2 was #1 3/ 5 4
		used 1#1 hash=6 by=7       -> conflict
		used 1#2 hash=6 by=8       -> CONSUMED
		repair 2 by=8              -> 2#2 was #1 2/
		repair 3 by=8              -> not_found
		list                       -> 0#3=HELD/repair 1#2=CONSUMED/6,4,5 2#2=HELD/repair
		status                     -> next 3 floor 0 held 2 released 0 consumed 1`},
	{"ARepairWithARequestIdIsRepeated", `
		allocate by=7           -> 0#1
		repair 0 id=r by=8      -> 0#2
		repair 0 id=r by=8      -> 0#2
		repair 0 id=r by=7      -> conflict
		repair 1 id=r by=8      -> conflict 0#2=HELD
		repair id=r by=8        -> conflict 0#2=HELD
		allocate id=r by=8      -> conflict 0#2=HELD
		used 0#2 hash=3 by=8    -> CONSUMED
		repair 0 id=r by=8      -> conflict 0#2=CONSUMED
		repair 0 id=s by=7      -> 0#3 3
		repair 0 by=8           -> conflict 0#0=HELD
		repair 1 id=t           -> not_found`},
	{"AGivenUpRepairLeavesWhatWasSent", `
		allocate        -> 0#1
		used 0#1 hash=4 -> CONSUMED
		repair 0        -> 0#2 was #1 3/ 4
		release 0#2     -> CONSUMED
		list            -> 0#2=CONSUMED/4`},
	{"ANonceBelowTheFloorIsNotRepairedWithoutAChain", `
		floor 5  -> floor 5 next 5
		repair 2 -> conflict 2#0=CONSUMED`},
	{"ANonceNeverHandedOutIsNotFound", `
		used 0#1    -> not_found
		release 5#1 -> not_found
		allocate    -> 0#1
		used 1#1    -> not_found`},
	{"ARequestIdGetsTheSameNoncesAndAttemptsAgain", `
		allocate            -> 0#1
		release 0#1         -> RELEASED
		allocate count=2 id=a -> 0#2 1#1
		allocate count=2 id=a -> 0#2 1#1
		allocate id=b       -> 2#1
		allocate id=b       -> 2#1
		status              -> next 3 floor 0 held 3 released 0 consumed 0`},
	{"ARequestIdWithOtherParametersIsAConflict", `
		allocate id=a           -> 0#1
		allocate id=a count=2   -> conflict 0#1=HELD
		allocate id=a hold=5s   -> conflict 0#1=HELD
		allocate id=a           -> 0#1`},
	{"ARequestIdWhoseHoldHasEndedIsAConflictWithTheState", `
		allocate id=a count=2 -> 0#1 1#1
		used 0#1 hash=7       -> CONSUMED
		allocate id=a count=2 -> conflict 0#1=CONSUMED 1#1=HELD
		release 1#1           -> RELEASED
		allocate id=a count=2 -> conflict 0#1=CONSUMED 1#1=RELEASED
		allocate              -> 1#2
		allocate id=a count=2 -> conflict 0#1=CONSUMED 1#2=HELD`},
	{"ARefusedRequestIdIsNotRemembered", `
		allocate count=4      -> 0#1 1#1 2#1 3#1
		allocate id=a count=2 -> hold_limit 5
		release 0#1           -> RELEASED
		allocate id=a count=2 -> 0#2 4#1`},
	{"TheHoldLimitIsAllOrNothingAndCountsOpenHoldsOnly", `
		allocate count=5 -> 0#1 1#1 2#1 3#1 4#1
		allocate         -> hold_limit 5
		used 0#1         -> CONSUMED
		allocate count=2 -> hold_limit 5
		allocate         -> 5#1
		release 1#1      -> RELEASED
		allocate count=2 -> hold_limit 5
		allocate         -> 1#2
		allocate count=6 -> hold_limit 5`},
	{"AtTheHoldLimitARequestIdStillFindsItsAnswer", `
		allocate id=a         -> 0#1
		allocate id=b count=4 -> 1#1 2#1 3#1 4#1
		allocate id=a         -> 0#1
		allocate id=b count=4 -> 1#1 2#1 3#1 4#1
		allocate id=b count=5 -> conflict 1#1=HELD 2#1=HELD 3#1=HELD 4#1=HELD
		allocate id=c         -> hold_limit 5`},
	{"TheLastNonceIsNeverPassed", `
		floor 9223372036854775806 -> floor 9223372036854775806 next 9223372036854775806
		allocate count=2          -> conflict
		allocate id=a             -> 9223372036854775806#1
		allocate                  -> conflict
		allocate id=a             -> 9223372036854775806#1
		release 9223372036854775806#1 -> RELEASED
		allocate                  -> 9223372036854775806#2`},
	{"ManyOpsOnOneNonceDependOnEachOther", `
		allocate        -> 0#1
		release 0#1     -> RELEASED
		allocate        -> 0#2
		used 0#1 hash=7 -> conflict 0#2=HELD
		used 0#2 hash=8 -> CONSUMED
		release 0#2     -> conflict 0#2=CONSUMED/8
		floor 1         -> floor 1 next 1
		used 0#2 hash=8 -> CONSUMED`},
	{"AFloorAndAReleaseOfWhatIsBelowItKeepTheirOrder", `
		allocate count=3 -> 0#1 1#1 2#1
		release 0#1      -> RELEASED
		floor 2          -> floor 2 next 3
		release 0#1      -> CONSUMED
		used 0#1 hash=7  -> CONSUMED
		release 1#1      -> CONSUMED
		release 2#1      -> RELEASED
		allocate         -> 2#2
		list             -> 0#1=CONSUMED/7/below_floor 1#1=CONSUMED/below_floor 2#2=HELD`},
	{"AReadSeesAllBeforeItAndNothingAfterIt", `
		status      -> next 0 floor 0 held 0 released 0 consumed 0
		allocate    -> 0#1
		status      -> next 1 floor 0 held 1 released 0 consumed 0
		list        -> 0#1=HELD
		release 0#1 -> RELEASED
		status      -> next 1 floor 0 held 0 released 1 consumed 0`},
}

func lines(script string) (ops, want []string) {
	for line := range strings.Lines(script) {
		if line = strings.TrimSpace(line); line != "" {
			op, result, _ := strings.Cut(line, " -> ")
			ops, want = append(ops, strings.TrimSpace(op)), append(want, strings.TrimSpace(result))
		}
	}
	return ops, want
}

// ways are the ways of running the ops of a script.
var ways = []struct {
	name string
	run  func(t *testing.T, d *disk, ops []string) []string
}{
	{"basic", func(t *testing.T, d *disk, ops []string) []string {
		return serially(start(t, d, "a", basicMode, maxHolds(5)), ops, func() {})
	}},
	{"worker", func(t *testing.T, d *disk, ops []string) []string {
		return serially(start(t, d, "a", maxHolds(5)), ops, func() {})
	}},
	{"workerThatForgets", func(t *testing.T, d *disk, ops []string) []string {
		return serially(start(t, d, "a", maxHolds(5)), ops, func() { d.SetEpoch(d.Epoch() + 1) })
	}},
	{"workerBesideBasic", func(t *testing.T, d *disk, ops []string) []string {
		nodes := []*node{start(t, d, "a", maxHolds(5)), start(t, d, "b", basicMode, maxHolds(5))}
		var out []string
		for i, op := range ops {
			out = append(out, nodes[i%2].run(op))
		}
		return out
	}},
	{"oneBatch", func(t *testing.T, d *disk, ops []string) []string {
		return start(t, d, "a", maxHolds(5)).batch(parseAll(t, ops)...)
	}},
	{"batchesBesideBasic", func(t *testing.T, d *disk, ops []string) []string {
		worker, basic := start(t, d, "a", maxHolds(5)), start(t, d, "b", basicMode, maxHolds(5))
		var out []string
		for i := 0; len(ops) > 0; i++ {
			n := min(4, len(ops))
			if i%2 == 0 {
				out = append(out, worker.batch(parseAll(t, ops[:n])...)...)
			} else {
				out = append(out, serially(basic, ops[:n], func() {})...)
			}
			ops = ops[n:]
		}
		return out
	}},
}

func parseAll(t *testing.T, ops []string) []*nonce.Op {
	out := make([]*nonce.Op, len(ops))
	for i, op := range ops {
		out[i] = parse(t, op)
	}
	return out
}

func serially(n *node, ops []string, between func()) []string {
	var out []string
	for _, op := range ops {
		out = append(out, n.run(op))
		between()
	}
	return out
}

func TestRule(t *testing.T) {
	for _, rule := range rules {
		ops, want := lines(rule.script)
		for _, way := range ways {
			t.Run(rule.name+"/"+way.name, func(t *testing.T) {
				got := way.run(t, newDisk(), ops)
				for i := range ops {
					if got[i] != want[i] {
						t.Errorf("%s: got %q, want %q", ops[i], got[i], want[i])
					}
				}
			})
		}
	}
}

// inBothModes runs test in a bubble of fake time, against each mode.
func inBothModes(t *testing.T, test func(t *testing.T, n *node), change ...func(*nonce.Config)) {
	for name, mode := range map[string]func(*nonce.Config){"worker": func(*nonce.Config) {}, "basic": basicMode} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, start(t, newDisk(), "a", append(change, mode)...)) })
		})
	}
}

func TestAHoldWhoseDeadlinePassedIsHandedOutAgain(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate hold=5s -> 0#1", "allocate -> 1#1")
		time.Sleep(5*time.Second - time.Millisecond)
		n.want("allocate -> 2#1")
		time.Sleep(2 * time.Millisecond)
		n.want("status -> next 3 floor 0 held 2 released 1 consumed 0", "allocate -> 0#2")
		if got, want := n.events.String(), "allocated 0#1, allocated 1#1, allocated 2#1, expired 0#1, allocated 0#2"; got != want {
			t.Errorf("got events %s, want %s", got, want)
		}
	})
}

func TestMarkUsedIsAcceptedAfterTheHoldExpiredUntilItIsHandedOutAgain(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate hold=5s -> 0#1", "allocate hold=5s -> 1#1")
		time.Sleep(6 * time.Second)
		n.want("used 0#1 hash=7 -> CONSUMED", "release 1#1 -> RELEASED", "allocate -> 1#2", "used 1#1 -> conflict 1#2=HELD")
	})
}

func TestAHoldThatExpiredIsStillItsHolders(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate hold=5s count=2 by=7 -> 0#1 1#1")
		time.Sleep(6 * time.Second)
		n.want("used 0#1 hash=7 by=8 -> not_holder", "used 0#1 hash=7 by=7 -> CONSUMED")
		n.want("allocate by=8 -> 1#2", "used 1#1 by=7 -> conflict", "used 1#2 by=7 -> not_holder")
	})
}

func TestAHoldBelowTheFloorIsConsumedWhenItIsDue(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate hold=5s -> 0#1", "floor 3 -> floor 3 next 3")
		time.Sleep(6 * time.Second)
		n.want("allocate -> 3#1", "list -> 0#1=CONSUMED/below_floor 3#1=HELD")
	})
}

func TestARequestIdWhoseHoldExpiredIsAConflict(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate hold=5s id=a -> 0#1")
		time.Sleep(6 * time.Second)
		n.want("allocate hold=5s id=a -> conflict 0#1=RELEASED", "allocate -> 0#2", "allocate hold=5s id=a -> conflict 0#2=HELD")
	})
}

func TestOverdueHoldsAreEndedBeforeTheHoldLimitIsJudged(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate hold=5s count=3 -> 0#1 1#1 2#1", "allocate -> hold_limit 3")
		time.Sleep(6 * time.Second)
		n.want("allocate -> 0#2")
	}, maxHolds(3))
}

func TestAnAllocateSaysHowLongItsHoldLasts(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		first, again := parse(t, "allocate hold=5s id=a"), parse(t, "allocate hold=5s id=a")
		n.do(first)
		if want := time.Now().Add(5 * time.Second); first.HoldLeft != 5*time.Second || !first.HeldUntil.Equal(want) {
			t.Errorf("got %v until %v, want 5s until %v", first.HoldLeft, first.HeldUntil, want)
		}
		time.Sleep(2 * time.Second)
		n.do(again)
		if again.HoldLeft != 3*time.Second || !again.HeldUntil.Equal(first.HeldUntil) || again.Token != first.Token {
			t.Errorf("the repeat: got %v until %v under token %d, want 3s until %v under %d",
				again.HoldLeft, again.HeldUntil, again.Token, first.HeldUntil, first.Token)
		}
		byDefault := parse(t, "allocate")
		if n.do(byDefault); byDefault.HoldLeft != n.cfg.DefaultHold {
			t.Errorf("without hold: got %v, want %v", byDefault.HoldLeft, n.cfg.DefaultHold)
		}
	})
}
