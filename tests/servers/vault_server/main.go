// A Vault server with the Transit engine and AppRole, on one loopback address, for tests.
package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/vault/builtin/credential/approle"
	"github.com/hashicorp/vault/builtin/logical/transit"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical/file"
	"github.com/hashicorp/vault/vault"
)

// engines holds what is part of this program, by name.
type engines map[string]logical.Factory

func (all engines) Contains(name string, _ consts.PluginType) bool { return all[name] != nil }

func (all engines) Get(name string, _ consts.PluginType) (func() (interface{}, error), bool) {
	factory := all[name]
	return func() (interface{}, error) { return factory, nil }, factory != nil
}

func (all engines) Keys(consts.PluginType) []string { return []string{"approle", "transit"} }

func (all engines) DeprecationStatus(name string, _ consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Supported, all[name] != nil
}

func (all engines) IsBuiltinEntPlugin(string, consts.PluginType) bool { return false }

// main takes the address, the folder of the storage, and a certificate and its key, or nothing.
func main() {
	address, folder := os.Args[1], os.Args[2]
	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr})
	storage, err := file.NewFileBackend(map[string]string{"path": folder}, logger)
	if err != nil {
		log.Fatal(err)
	}
	logical, credential := engines{"transit": transit.Factory}, engines{"approle": approle.Factory}
	core, err := vault.NewCore(&vault.CoreConfig{
		Physical:           storage,
		LogicalBackends:    logical,
		CredentialBackends: credential,
		BuiltinRegistry:    engines{"transit": transit.Factory, "approle": approle.Factory},
		DisableMlock:       true,
		Logger:             logger,
		DefaultLeaseTTL:    time.Hour,
		MaxLeaseTTL:        24 * time.Hour,
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := core.UnsealWithStoredKeys(context.Background()); err != nil {
		logger.Debug("not unsealed", "error", err)
	}
	server := &http.Server{Addr: address, Handler: vaulthttp.Handler.Handler(&vault.HandlerProperties{
		Core:           core,
		ListenerConfig: &configutil.Listener{Address: address},
	})}
	if len(os.Args) > 3 {
		log.Fatal(server.ListenAndServeTLS(os.Args[3], os.Args[4]))
	}
	log.Fatal(server.ListenAndServe())
}
