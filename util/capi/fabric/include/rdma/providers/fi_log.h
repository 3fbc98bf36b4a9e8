/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The log of providers: fi_provider(3). */
#ifndef SELVEDGE_RDMA_PROVIDERS_FI_LOG_H
#define SELVEDGE_RDMA_PROVIDERS_FI_LOG_H

#include <rdma/fabric.h>
#include <rdma/providers/fi_prov.h>

#ifdef __cplusplus
extern "C" {
#endif

enum fi_log_subsys {
	FI_LOG_CORE,
	FI_LOG_FABRIC,
	FI_LOG_DOMAIN,
	FI_LOG_EP_CTRL,
	FI_LOG_EP_DATA,
	FI_LOG_AV,
	FI_LOG_CQ,
	FI_LOG_EQ,
	FI_LOG_MR,
	FI_LOG_CNTR,
	FI_LOG_SUBSYS_MAX
};

enum fi_log_level {
	FI_LOG_WARN,
	FI_LOG_TRACE,
	FI_LOG_INFO,
	FI_LOG_DEBUG,
	FI_LOG_MAX
};

int fi_log_enabled(const struct fi_provider *prov, enum fi_log_level level,
		enum fi_log_subsys subsys);
int fi_log_ready(const struct fi_provider *prov, enum fi_log_level level, enum fi_log_subsys subsys,
		uint64_t *showtime);
void fi_log(const struct fi_provider *prov, enum fi_log_level level, enum fi_log_subsys subsys,
		const char *func, int line, const char *fmt, ...) FI_FORMAT_PRINTF(6, 7);

/* C++ has macros with any number of arguments since 2011. */
#if !defined(__cplusplus) || __cplusplus >= 201103L
/* Logs if `condition` holds, and leaves errno as it is. */
#define SELVEDGE_FI_LOG_IF(condition, prov, level, subsystem, ...) \
	do { \
		if (condition) { \
			int fi_log_errno = errno; \
			fi_log(prov, level, subsystem, __func__, __LINE__, __VA_ARGS__); \
			errno = fi_log_errno; \
		} \
	} while (0)

#define FI_LOG(prov, level, subsystem, ...) \
	SELVEDGE_FI_LOG_IF(fi_log_enabled(prov, level, subsystem), prov, level, subsystem, \
			__VA_ARGS__)

/* At most once in a period of time for each place in the source. */
#define FI_LOG_SPARSE(prov, level, subsystem, ...) \
	do { \
		static uint64_t fi_log_showtime; \
		SELVEDGE_FI_LOG_IF(fi_log_ready(prov, level, subsystem, &fi_log_showtime), prov, \
				level, subsystem, __VA_ARGS__); \
	} while (0)

#define FI_WARN(prov, subsystem, ...) FI_LOG(prov, FI_LOG_WARN, subsystem, __VA_ARGS__)
#define FI_WARN_SPARSE(prov, subsystem, ...) \
	FI_LOG_SPARSE(prov, FI_LOG_WARN, subsystem, __VA_ARGS__)
#define FI_TRACE(prov, subsystem, ...) FI_LOG(prov, FI_LOG_TRACE, subsystem, __VA_ARGS__)
#define FI_INFO(prov, subsystem, ...) FI_LOG(prov, FI_LOG_INFO, subsystem, __VA_ARGS__)

#define FI_WARN_ONCE(prov, subsystem, ...) \
	do { \
		static int fi_log_warned; \
		if (!fi_log_warned && fi_log_enabled(prov, FI_LOG_WARN, subsystem)) { \
			fi_log_warned = 1; \
			SELVEDGE_FI_LOG_IF(1, prov, FI_LOG_WARN, subsystem, __VA_ARGS__); \
		} \
	} while (0)

#if defined(ENABLE_DEBUG) && ENABLE_DEBUG
#define FI_DBG(prov, subsystem, ...) FI_LOG(prov, FI_LOG_DEBUG, subsystem, __VA_ARGS__)
#define FI_DBG_TRACE(prov, subsystem, ...) FI_LOG(prov, FI_LOG_TRACE, subsystem, __VA_ARGS__)
#else
#define FI_DBG(prov, subsystem, ...) do {} while (0)
#define FI_DBG_TRACE(prov, subsystem, ...) do {} while (0)
#endif
#endif

#ifdef __cplusplus
}
#endif

#endif
