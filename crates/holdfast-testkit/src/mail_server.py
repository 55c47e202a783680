"""A mail server for tests: accepts messages, parses them, and saves them as JSON."""

import asyncio
import base64
import email
import email.policy
import json
import os
import signal
import ssl
import sys
import threading

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

port, mode, inbox, certificate, key, user, password = sys.argv[1:]
count = 0


def authenticate(server, session, envelope, mechanism, login):
    given = (login.login.decode(), login.password.decode())
    if given != (user, password):
        return AuthResult(success=False, handled=False)
    session.who = given[0]
    return AuthResult(success=True)


class Inbox:
    async def handle_RCPT(self, server, session, envelope, address, options):
        name = address.split("@")[0]
        if name.startswith("refused"):
            return "550 5.1.1 no such mailbox"
        if name.startswith("later"):
            return "451 4.2.1 try again later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        global count
        if any(address.startswith("slow") for address in envelope.rcpt_tos):
            await asyncio.sleep(4)
            open(os.path.join(inbox, "late"), "w").close()
            return "250 2.0.0 taken at last"
        if any(address.startswith("unwanted") for address in envelope.rcpt_tos):
            return "554 5.7.1 not wanted"
        count += 1
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        mail = {
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "is_tls": session.ssl is not None or mode == "tls",
            "user": getattr(session, "who", None),
            "headers": [[name, str(value)] for name, value in message.items()],
            "text": "",
            "html": "",
            "pictures": [],
        }
        for part in message.walk():
            if part.is_multipart():
                continue
            kind = part.get_content_type()
            if kind == "text/plain":
                mail["text"] = part.get_content().replace("\r\n", "\n")
            elif kind == "text/html":
                mail["html"] = part.get_content().replace("\r\n", "\n")
            else:
                content = base64.b64encode(part.get_payload(decode=True)).decode()
                mail["pictures"].append([part.get("Content-ID", ""), kind, content])
        path = os.path.join(inbox, f"{count:06}")
        with open(path + ".new", "w") as file:
            json.dump(mail, file)
        os.rename(path + ".new", path + ".json")
        return "250 2.0.0 taken"


options = {"enable_SMTPUTF8": True}
context = None
if mode != "open":
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    options |= {"authenticator": authenticate, "auth_required": True}
if mode == "starttls":
    options |= {"tls_context": context, "require_starttls": True}
if mode == "tls":
    options |= {"auth_require_tls": False}
controller = Controller(
    Inbox(), hostname="127.0.0.1", port=int(port), ssl_context=context if mode == "tls" else None, **options
)
controller.start()
ended = threading.Event()
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: ended.set())
ended.wait()
controller.stop()
