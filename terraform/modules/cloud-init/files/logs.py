#!/usr/bin/python3
"""Ships what weir's units log to CloudWatch, and goes on after the last line that arrived there.

A timer runs it. Each batch is at most 1000 lines of a day, below the megabyte that CloudWatch takes.
"""

import json
import os
import subprocess
import sys
import tempfile

state = os.environ.get("WEIR_ROOT", "") + "/var/lib/weir-logs/cursor"


def aws(*args):
    where = ["--region", os.environ["LOG_REGION"], "--log-group-name", os.environ["LOG_GROUP"], "--log-stream-name", os.environ["INSTANCE"]]
    return subprocess.run(["aws", "logs", args[0], *where, *args[1:]], capture_output=True, text=True)


def lines():
    """The next lines, as journalctl prints them."""
    command = ["journalctl", "--no-pager", "--output=json", "--output-fields=MESSAGE,PRIORITY,_SYSTEMD_UNIT", "--unit=weir-*"]
    if os.path.exists(state):
        with open(state) as file:
            command.append("--after-cursor=" + file.read())
    batch = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as journal:
        for line in journal.stdout:
            line = json.loads(line)
            if batch and abs(time(line) - time(batch[0])) > 80_000_000:
                break
            batch.append(line)
            if len(batch) == 1000:
                break
        journal.stdout.close()
    return batch


def time(line):
    return int(line["__REALTIME_TIMESTAMP"]) // 1000


def wanted(line):
    """Not that systemd starts a timer's unit every few seconds, but that one has failed."""
    return line.get("_SYSTEMD_UNIT", "").startswith("weir-") or int(line.get("PRIORITY", 6)) <= 4


def text(line):
    message = line.get("MESSAGE") or ""
    if isinstance(message, list):  # not UTF-8
        message = bytes(message).decode(errors="replace")
    return (line.get("_SYSTEMD_UNIT", "") + " " + message).encode()[:900].decode(errors="ignore")


def ship(batch):
    # CloudWatch wants the order of time, which a corrected clock breaks.
    events = sorted(({"timestamp": time(line), "message": text(line)} for line in batch if wanted(line)), key=lambda e: e["timestamp"])
    if events:
        put(events)
    with open(state + ".new", "w") as file:
        file.write(batch[-1]["__CURSOR"])
    os.rename(state + ".new", state)


def put(events):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(events, file)
        file.flush()
        result = aws("put-log-events", "--log-events", "file://" + file.name)
        if "ResourceNotFoundException" in result.stderr:
            aws("create-log-stream")
            result = aws("put-log-events", "--log-events", "file://" + file.name)
    if result.returncode:
        sys.exit("weir: CloudWatch took nothing: " + result.stderr.strip())


while batch := lines():
    ship(batch)
