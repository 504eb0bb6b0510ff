/* transport/mail/version.h: the version of what processes say to each other, all of docs/wire.md: the meeting's frames
 * (transport/meet/), the bus's (transport/net/) and the messages in them (transport/mail/message.h). Both say it first;
 * it changes with any of them.
 */
#ifndef TRANSPORT_MAIL_VERSION_H
#define TRANSPORT_MAIL_VERSION_H

#ifndef WIRE_VERSION /* tests build another */
#define WIRE_VERSION 9
#endif

#endif
