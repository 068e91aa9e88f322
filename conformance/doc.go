// Package conformance proves that an agent keeps the promise of the product:
// what was approved is exactly what ran, once, decided by someone entitled to
// decide it. It reads cases, plays caller and reviewer over HTTP, injects faults,
// counts what the tools really did, and reports every check by name.
//
// It speaks to a server only through api/client and shares no code with the
// engine: what the engine gets wrong cannot be wrong here in the same way. Where
// a check needs more than the API shows, the facts come through Dir, a folder in
// which the kit's own server notes every model request and every boundary of the
// journal, and in which Proxy, put before each stdio MCP server, notes every tool
// call before the tool sees it. A server that the kit did not start (--url) leaves
// no such notes: its calls are counted from the trajectory, the histories it sends
// to its model are not checked, and cases with faults that need a server of the
// kit's own are reported as skipped.
//
// # conformance.yaml
//
//	cases:
//	  - capability: support          # required: a capability of the agent
//	    name: cancel-edited          # required, unique in the file
//	    input: {message: 'call:cancel_order {"order_id": "A-1002", "reason": "twice"}'}
//	    expect: suspended            # completed (default) | suspended, held | failed
//	    hold:                        # what the reviewer must see; every key is optional
//	      kind: tool_call            # or outcome_unknown
//	      intent: Run cancel_order?
//	      items: [{id: call_1, data: {order_id: A-1002}}]   # one each, in order, each a subset
//	    decision:                    # left out: every item is approved
//	      - {id: call_1, action: edit, data: {order_id: A-1001, reason: wrong order}}
//	    calls:                       # how often tools really ran; left out: what was approved, once
//	      - {tool: cancel_order, times: 1, arguments: {order_id: A-1001}}
//	    output: {answer: …}          # a subset of the output, or {schema: {…}} alone
//	    error: {code: hold_expired}  # the run fails, after its decisions if it is held
//	    unknown: {action: skip}      # for calls whose outcome is unknown: skip (default), retry, ran
//	    fault: kill                  # see below
//
// A run that is held several times has steps instead of hold and decision, one
// for each request that a reviewer sends:
//
//	steps:
//	  - decision: [{id: call_1, action: approve}]
//	  - hold: {items: [{id: call_2}]}
//	    fault: double_decision
//
// # Subsets
//
// A value fits when it holds everything the case says: objects may have more
// members, arrays must have as many elements, and everything else is equal as
// JSON, numbers by their text.
//
// # Faults
//
//	kill             the case runs once in peace; then once for every boundary it
//	                 passed, and at each the server is killed (SIGKILL) and started again
//	{kill: POINT}    the same at one point: before: or after: the commit of an entry
//	                 (run.created, model.answered, call.started, call.finished, hold.opened,
//	                 hold.decided, hold.closed, run.recovered, run.completed, run.failed,
//	                 run.cancelled), or during:model, during:call (after the tool's effect,
//	                 before its answer); "#2" behind it means the second time. A list is possible.
//	drop_mcp         the MCP server dies after its effect and before its answer
//	change_tool      the tool's definition changes between the hold and the decision
//	double_decision  the decision is sent by 8 clients at once, and, in a run of its
//	                 own, approve races reject from 16
//	expire           the hold's time ends before anybody decides
//
// A fault of a step begins just before its decision. A fault of the case is one
// of its first step, except kill and drop_mcp, which begin with the run.
package conformance
