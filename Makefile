# weir's build. `make help` lists the targets. Objects go to build/<variant>; SAN=address,undefined and SAN=thread are variants.

SAN     ?=
VARIANT := $(if $(SAN),san-$(subst $(comma),-,$(SAN)),release)
comma   := ,
VARIANT := $(if $(SAN),san-$(subst $(comma),-,$(SAN)),release)
OUT     := build/$(VARIANT)
BIN     := $(if $(SAN),$(OUT)/bin,build/bin)

CC      ?= gcc
CXX     ?= g++
OPT     ?= -O3 -march=native -fno-math-errno -fno-trapping-math
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Werror
CFLAGS  += -std=gnu17 $(WARN) -g $(if $(SAN),-O1 -march=native -fno-omit-frame-pointer -fsanitize=$(SAN),$(OPT)) \
           $(if $(findstring thread,$(SAN)),-Itests/support/plain) -Iinclude -I. -MMD -MP -pthread $(shell pkg-config --cflags msgpack criterion 2>/dev/null)
LDFLAGS += -pthread $(if $(SAN),-fsanitize=$(SAN))
LDLIBS  += -lmsgpackc -lopenblas -ldnnl -lm

LIB_DIRS := graph regst actors transport kernels $(sort $(dir $(wildcard kernels/*/*.c)))
LIB_SRC  := $(sort $(foreach d,$(LIB_DIRS),$(wildcard $(d:/=)/*.c)))
LIB_OBJ  := $(LIB_SRC:%.c=$(OUT)/%.o)
LIB      := $(OUT)/libweir.a

# A program is apps/<name>/ or apps/<name>.c; what they share is in apps/common/.
APP_COMMON := $(patsubst %.c,$(OUT)/%.o,$(wildcard apps/common/*.c))
APPS       := weir weir-digits weir-gpt
APP_BIN    := $(APPS:%=$(BIN)/%)

# A suite is tests/test_<name>.c; what they share is in tests/support/.
TEST_SRC     := $(sort $(wildcard tests/test_*.c))
TEST_BIN     := $(TEST_SRC:tests/%.c=$(OUT)/tests/%)
TEST_SUPPORT := $(patsubst %.c,$(OUT)/%.o,$(wildcard tests/support/*.c))

DEPS := libmsgpack-dev libcriterion-dev libopenblas-dev libdnnl-dev graphviz pkg-config gcc g++

.PHONY: help all deps demo test bench check clean
.DEFAULT_GOAL := help

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## install the Debian packages that are missing; does nothing when all are there
	@missing=$$(for p in $(DEPS); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
		root=$$( [ $$(id -u) = 0 ] || echo sudo ); echo "installing $$missing"; \
		$$root apt-get update -qq && $$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing; \
	fi

all: $(LIB) $(APP_BIN) ## the library and the programs

$(OUT)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c $< -o $@

$(LIB): $(LIB_OBJ)
	@mkdir -p $(@D)
	@rm -f $@
	ar rcs $@ $^

define app_rule
$(BIN)/$(1): $(patsubst %.c,$(OUT)/%.o,$(sort $(wildcard apps/$(1)/*.c apps/$(1).c))) $(APP_COMMON) $(LIB)
	@mkdir -p $$(@D)
	$(CC) $(LDFLAGS) $$^ $(LDLIBS) -o $$@
endef
$(foreach a,$(APPS),$(eval $(call app_rule,$(a))))

# Support code is a library, so that a suite takes what it uses; so is what the programs share.
$(OUT)/libsupport.a: $(TEST_SUPPORT) $(APP_COMMON)
	@mkdir -p $(@D)
	@rm -f $@
	ar rcs $@ $^

$(OUT)/tests/%: $(OUT)/tests/%.o $(OUT)/libsupport.a $(LIB)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) $(if $(findstring thread,$(SAN)),,-lcriterion) -o $@

# ---- fuzzing: a target is tests/fuzz/fuzz_<name>.c, its inputs are tests/fuzz/corpus/<name>/ ----
FUZZ         := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SECONDS ?= 60
FUZZ_FLAGS   := -std=gnu17 -O1 -g -Iinclude -I. -pthread -fsanitize=fuzzer,address,undefined
FUZZ_CODE    := $(wildcard graph/plan*.c) graph/check.c # what is searched; the rest is linked as it is
TEST_BIN     += $(FUZZ:%=$(OUT)/tests/replay_%)

$(OUT)/tests/replay_%: $(OUT)/tests/fuzz/fuzz_%.o $(OUT)/tests/fuzz/replay.o $(OUT)/libsupport.a $(LIB)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@

build/fuzz/%: tests/fuzz/fuzz_%.c $(FUZZ_CODE) $(OUT)/libsupport.a $(LIB)
	@mkdir -p $(@D)
	clang $(FUZZ_FLAGS) $^ $(LDLIBS) -o $@

fuzz: $(FUZZ:%=build/fuzz/%) ## search for inputs that break what parses bytes, FUZZ_SECONDS each; needs clang
	@for f in $(FUZZ); do mkdir -p build/fuzz/found-$$f && build/fuzz/$$f -max_total_time=$(FUZZ_SECONDS) -timeout=10 \
		-artifact_prefix=build/fuzz/$$f- build/fuzz/found-$$f tests/fuzz/corpus/$$f || exit 1; done
.PHONY: fuzz
-include $(wildcard $(OUT)/tests/fuzz/*.d)
# ---- end of fuzzing ----

tests: $(TEST_BIN)

test: deps ## build everything and run every suite
	@$(MAKE) --no-print-directory all tests
	@failed=0; for t in $(TEST_BIN); do echo "== $$t"; $$t || failed=1; done; exit $$failed

# ---- programs: examples, what tests need of them, demo, bench ----

# An example is one file, apps/examples/<name>.c, and needs nothing but the library.
EXAMPLES := $(patsubst apps/examples/%.c,$(BIN)/%,$(wildcard apps/examples/*.c))
all: $(EXAMPLES)
$(BIN)/%: $(OUT)/apps/examples/%.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@

# tests/test_apps.c runs the programs.
$(OUT)/tests/test_apps.o: CFLAGS += -DAPPS_BIN='"$(BIN)"'
$(OUT)/tests/test_apps: | $(APP_BIN) $(EXAMPLES)

demo: deps ## train a GPT on four CPU devices on the project's own sources, for about a minute
	@$(MAKE) --no-print-directory all
	$(BIN)/weir-gpt --pp 2 --dp 2 --micro 4 --steps 700 --sample 500

bench: deps ## measure actors and a training step on this machine
	@$(MAKE) --no-print-directory all
	$(BIN)/weir bench

-include $(wildcard $(OUT)/apps/*/*.d)
# ---- end of programs ----

clean: ## remove build/
	rm -rf build

-include $(LIB_OBJ:.o=.d) $(TEST_SRC:tests/%.c=$(OUT)/tests/%.d) $(TEST_SUPPORT:.o=.d) $(APP_COMMON:.o=.d)
.SECONDARY:
