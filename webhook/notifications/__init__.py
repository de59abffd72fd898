"""What happened to rules, sent to Alertmanager and to receivers of CloudEvents.

In: changes of DeviceTaintRules as the watch shows them. Out: HTTP requests in the background; nothing here delays an
eviction or fails it. `notice` is the one model of events, `rule_notices` finds them, `alert_board` and `event_queue`
are the two sinks. Start with `notice`.
"""
