/* transport/mail/quota.h: how many cores the process's control groups let it keep busy.
 *
 * A container or a service is often given a share of time rather than a mask: docker run --cpus 2, Kubernetes' limits,
 * systemd's CPUQuota=. With more threads than that the kernel stops all of them for the rest of each period, so weir
 * counts a quota like a mask of cores. It reads:
 *
 *     /proc/self/cgroup      the process's group: of version 2, and of version 1 with the controller cpu
 *     /proc/self/mountinfo   where these are mounted; in a container, which part of them
 *     cpu.max                version 2: "QUOTA PERIOD" or "max PERIOD"
 *     cpu.cfs_quota_us, cpu.cfs_period_us    version 1; a quota of -1 is none
 *
 * for the group and all above it that are mounted here, as each of them binds. A system may have both versions. A file
 * that is missing, or is not understood, sets no limit.
 */
#ifndef TRANSPORT_MAIL_QUOTA_H
#define TRANSPORT_MAIL_QUOTA_H

/* The smallest quota, as cores: rounded up, and at least 1; INT_MAX: there is none. `root` comes before all paths: "" is
 * the system, else a folder that stands for it. Reads files and changes nothing. Any thread. */
int quota_cores(const char *root);

#endif
