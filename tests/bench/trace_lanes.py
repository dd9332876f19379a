"""trace_lanes - the lanes of a trace.json by their names, whatever their numbers are."""


def lanes(events, *names):
    """Numbers of the lanes with one of these names, or one that goes on behind a blank ("point 3")."""
    found = {e["tid"] for e in events if e.get("name") == "thread_name"
             and any(e["args"]["name"].split(" ")[0] == name for name in names)}
    if not found:
        raise SystemExit(f"trace.json has no lane named {' or '.join(names)}")
    return found
