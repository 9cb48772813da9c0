"""Why known implementations answer otherwise than the vectors expect."""
def reason(peer, case, answer):
    return "TODO"
