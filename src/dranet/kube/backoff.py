from dranet.basics.backoff import Backoff as Backoff
