package boards

// submitGuard is about calls that are guarded against being made twice at
// a time.
func submitGuard() Row {
	acquired, refused := sum(each(of("guard_acquired_total"))), sum(each(of("guard_refused_total")))
	released, failed := sum(each(of("guard_released_total"))), sum(each(of("guard_release_failed_total")))
	return Row{Title: "Duplicate-submit guard", Needs: "guarded calls", Panels: []Panel{
		graph("Submit guard: locks, by result", "ops",
			"Locks of guarded calls. acquired: taken. refused: somebody else had it; the call is duplicate_submit, unless its request id is known. unanswered: nobody said; the call is unavailable. kept: left until its interval is over, as the call asked for. Not 0: Redis is away, and guarded calls are refused.",
			Query{acquired, "acquired"}, Query{refused, "refused"}, Query{sum(each(of("guard_unanswered_total"))), "unanswered"},
			Query{released, "released"}, Query{sum(each(of("guard_kept_total"))), "kept"}),
		graph("Submit guard: share of locks refused", "percentunit",
			"Locks that somebody else had, of all that were asked for. Above 20 %: clients repeat their calls, or share a key.",
			Query{share(refused, acquired+" + "+refused), "refused"}),
		graph("Submit guard: failed releases, by reason", "ops",
			"Locks that were not given back. value_mismatch: it had ended by itself before its call, so the same submission may have run twice at a time. away: Redis did not answer, and the lock ends by itself. value_mismatch: calls take longer than their interval.",
			byLabel("guard_release_failed_total", "reason")...),
		graph("Submit guard: share of failed releases", "percentunit",
			"Locks that were not given back, of all that were to be. Above 1 %: the interval is too short, or Redis is away.",
			Query{share(failed, released+" + "+failed), "not given back"}),
		graph("Submit guard: hold time (mean)", "s",
			"How long a call has its lock, on the average: from taking it until it was given back, the call between. Locks that are kept are not in it. It rises: slow calls, each of which is answered after its lock was given back.",
			Query{share(sum(each(of("guard_hold_seconds_sum"))), sum(each(of("guard_hold_seconds_count")))), "mean"}),
	}}
}
