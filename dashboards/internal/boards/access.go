package boards

// logins is about credentials, the audit, and the files of TLS.
func logins() Row {
	return Row{Title: "Logins, TLS and the audit", Needs: "--rights or TLS", Panels: []Panel{
		graph("Logins, by credential", "ops",
			"Credentials accepted, by their kind. 0 without --rights. Each upgrade and each ticket is one.", byLabel("logins_total", "credential")...),
		graph("Refused logins, by reason", "ops",
			"Credentials not accepted, by why. The audit has who and from where. A wrong key, or somebody who tries.", byLabel("logins_refused_total", "reason")...),
		graph("Sockets before login", "short",
			"Open sockets whose clients were not let in yet, and most of them on one node. At the bound: somebody opens sockets and does not log in.",
			Query{sum(of("sockets_waiting"), instanceVariable), "{{instance}}"}, Query{highest(of("sockets_waiting_max")), "bound of a node"}),
		graph("Audit lines written and dropped", "ops",
			"Lines of the audit that were written, and those left out because the log did not keep up. Dropped ones: the log is slower than the audit.",
			Query{sum(each(of("audit_lines_total"))), "written"}, Query{sum(each(of("audit_dropped_total"))), "dropped"}),
		graph("Refused requests to the admin address, by node", "ops",
			"Requests to the admin address without the right key. Somebody does not have the key.", byInstance(each(of("admin_refused_total")))...),
		graph("TLS and rights files: stale, failed, taken", "short",
			"Nodes whose TLS files, or whose rights file, have changed to something that cannot be used; and changes of TLS files that were taken and could not be, since the nodes' start. stale or failed is not 0: look at the files.",
			Query{sum(of("tls_files_stale")), "stale"}, Query{sum(of("tls_reload_failures_total")), "failed"}, Query{sum(of("tls_reloads_total")), "taken"},
			Query{sum(of("rights_reload_failed")), "rights stale"}),
		graph("Time until the first certificate ends", "s",
			"Until the first certificate in force ends. 0 without TLS.",
			Query{orZero("min(" + of("tls_certificate_expires_timestamp_seconds") + " > 0) - time()"), "left"}),
	}}
}
