
ttrpc.protottrpc"¥
Request
service (	Rservice
method (	Rmethod
payload (Rpayload!
timeout_nano (RtimeoutNano+
metadata (2.ttrpc.KeyValueRmetadata"2
KeyValue
key (	Rkey
value (	Rvalue"K
Response%
status (2.ttrpc.StatusRstatus
payload (Rpayload"6
Status
code (Rcode
message (	Rmessagebproto3