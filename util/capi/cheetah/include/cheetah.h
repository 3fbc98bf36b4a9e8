/* Cheetah's flat interface: one-sided messaging, pulled.
 *
 * Everything answers a number: 0 or more is success, CHEETAH_ERROR or less an error, whose sentence
 * cheetah_error() has. The library moves bytes and rings bells, and runs nothing of the program's:
 * what others have invoked is pulled with cheetah_next(). Cheetah/Cheetah.h does that for C++.
 *
 * A context is used by one thread at a time. */

#ifndef CHEETAH_FLAT_H
#define CHEETAH_FLAT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Something failed. */
#define CHEETAH_ERROR (-1)
/* A context is gone; cheetah_error() names it. */
#define CHEETAH_LOST (-2)
/* The context has finalized. */
#define CHEETAH_FINALIZED (-3)
/* It took too long. */
#define CHEETAH_TIMED_OUT (-4)

/* One context of a program. */
typedef struct cheetah_context cheetah_context;

/* What a message is for. */
enum { CHEETAH_FUNCTION = 0, CHEETAH_CHANNEL = 1 };

/* A message that was pulled. Its bytes are at a multiple of 16, and may be changed, until it is
 * released. */
typedef struct cheetah_message {
    int from;
    int kind;   /* CHEETAH_FUNCTION or CHEETAH_CHANNEL */
    int id;     /* the function, or the handler */
    int tag;    /* the tag, of a handler's message */
    void *bytes;
    size_t len;
    void *handle;
} cheetah_message;

/* Room for a message, to be packed in place. */
typedef struct cheetah_parcel cheetah_parcel;

/* Starts the contexts of a program as its arguments and the environment say; takes its options out of
 * the arguments. May return in several processes. */
int cheetah_open(int *argc, char ***argv, cheetah_context **context);
/* Frees a context. One that has not finalized is gone for the others. */
void cheetah_close(cheetah_context *context);
/* Takes a step to the common end; 1 when it is reached. Pull messages between steps. */
int cheetah_finalize_step(cheetah_context *context);
/* Waits for contexts that were forked; an error names those that have failed. */
int cheetah_wait_for_children(cheetah_context *context);
int cheetah_is_finalized(const cheetah_context *context);

int cheetah_mycontext(const cheetah_context *context);
int cheetah_ncontexts(const cheetah_context *context);

/* Moves bytes and rings bells. */
int cheetah_progress(cheetah_context *context);
/* The next message: 1, or 0 if there is none. */
int cheetah_next(cheetah_context *context, cheetah_message *message);
void cheetah_release(cheetah_message *message);
/* The oldest failure that this function has not told of: an error, or 0. */
int cheetah_failure(cheetah_context *context);
/* The oldest failure that neither cheetah_failure() nor cheetah_hopeless() has told of: an error, or 0.
 * Ask after a barrier and before each cheetah_finalize_step(): a context that is at its end has
 * forgotten its failures. */
int cheetah_unreported_failure(cheetah_context *context);
/* Whether a wait for this bell, or with NULL for a barrier, is in vain: an error, or 0. Asking
 * about a bell forgets the error that it carries. */
int cheetah_hopeless(cheetah_context *context, int *bell);
/* Sleeps until something may have come, so many milliseconds at most. */
int cheetah_rest(cheetah_context *context, int millis);
/* How many milliseconds waits last by themselves (CHEETAH_TIMEOUT, such as 30s); 0 for ever. */
int cheetah_limit(const cheetah_context *context);
/* Answers CHEETAH_TIMED_OUT, with the contexts that do not answer, or have not entered the barrier,
 * in the sentence. */
int cheetah_timed_out(cheetah_context *context, const char *what, int millis, int is_barrier);

/* Puts and gets; the addresses of the other context's bells and bytes are that one's. Bells may be
 * NULL. */
int cheetah_put(cheetah_context *context, int to, void *remote, const void *local, size_t len,
                int *local_bell, int *remote_bell);
int cheetah_get(cheetah_context *context, int of, const void *remote, void *local, size_t len,
                int *local_bell, int *remote_bell);

/* Registers a function: its number. The name, or with NULL the place of the code in its file, is
 * compared with those of the other contexts at the first barrier. */
int cheetah_register(cheetah_context *context, const char *name, void (*code)(void));
/* Numbers a handler. */
int cheetah_channel(cheetah_context *context, const char *name);
/* Tells the caller of a function that there is none. */
int cheetah_no_function(cheetah_context *context, int caller, int id);

/* Invokes a function of another context. Without a bell, the bytes are copied; with one, they stay
 * as they are until it has rung. */
int cheetah_ainvoke(cheetah_context *context, int to, int id, const void *bytes, size_t len,
                    int *bell);
/* Sends to a handler of another context; the bytes are copied. */
int cheetah_send(cheetah_context *context, int to, int channel, int tag, const void *bytes,
                 size_t len);

/* Room for a message, in special memory where there is such. */
int cheetah_reserve(cheetah_context *context, int to, size_t len, cheetah_parcel **parcel,
                    void **room);
/* Sends it, and takes it away. */
int cheetah_commit(cheetah_context *context, cheetah_parcel *parcel, int kind, int id, int tag);
/* Gives the room back unsent. */
void cheetah_abandon(cheetah_context *context, cheetah_parcel *parcel);

/* Special memory, which others write and read by loads and stores; NULL if there is none. */
void *cheetah_allocate(cheetah_context *context, size_t len);
/* Gives it back. */
int cheetah_free(cheetah_context *context, void *memory);

int cheetah_barrier_begin(cheetah_context *context);
/* 1 when all have entered; progress until then. */
int cheetah_barrier_done(cheetah_context *context);

/* Copies of payload that this context has made, or has had made. */
unsigned long cheetah_copies(const cheetah_context *context);

/* The sentence of the last error of this thread. */
const char *cheetah_error(void);

#ifdef __cplusplus
}
#endif

#endif
